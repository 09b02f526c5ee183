//! The people of a run: a bot or a browser's page, from joining to leaving.

mod arrivals;
mod canary;
mod churn;
mod crowd;
mod guest;
mod mesh;
mod place;
mod visit;
mod way;

pub use arrivals::arrivals;
pub use canary::{PageGuest, canary, canary_churn};
pub use churn::churn;
pub use crowd::crowd;
pub use guest::{Guest, bot};
pub use place::Place;

#[cfg(test)]
mod tests;
