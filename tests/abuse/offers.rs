//! Offers and junk datagrams do not hold up the offers of others, and leave nothing over (door 5).
