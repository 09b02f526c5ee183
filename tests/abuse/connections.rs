//! Half requests and idle connections of one address: everybody else gets in (door 3).
