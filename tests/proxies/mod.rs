//! Behind a reverse proxy: whose connections and requests they are, and which limits count.

mod programs;
mod told;
