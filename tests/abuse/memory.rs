//! What can be made to be held without rights is bounded (door 4).
