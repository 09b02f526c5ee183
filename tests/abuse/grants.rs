//! What a token does not grant does not pass, by whatever way (door 7).
