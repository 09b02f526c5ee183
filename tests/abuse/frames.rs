//! Cheap calls with costly answers: each kind of call has a budget (door 9).
