//! The npm SocketCluster server, as a child of the study on the CPUs that moim's own server has.

use crate::base::http;
use crate::run::{OwnServer, free_port};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

/// A SocketCluster server.
#[derive(Debug)]
pub(super) struct SocketCluster {
    server: OwnServer,
    /// What it says of itself: its version and node's.
    pub version: String,
}

impl SocketCluster {
    /// Starts `node SCRIPT PORT` and waits until it answers; its output goes into `dir`.
    ///
    /// # Errors
    /// There is no node, or the script ends or does not answer in time; with the end of its output.
    pub async fn start(script: &Path, cpus: &[usize], dir: &Path) -> io::Result<Self> {
        let port = free_port()?;
        let mut command = Command::new("node");
        command.arg(script).arg(port.to_string());
        let server = OwnServer::run(command, port, cpus, &dir.join("socketcluster.log")).await?;
        let version = http::get(&server.url, "/healthz", Duration::from_secs(5)).await?;
        Ok(Self { server, version: version.trim().to_owned() })
    }

    /// The line of a scenario that tests it.
    pub fn target(&self) -> String {
        format!("target: {{ adapter: socketcluster, url: \"{}\" }}\n", self.server.url)
    }

    /// Ends it.
    pub async fn stop(mut self) {
        self.server.stop().await;
    }
}
