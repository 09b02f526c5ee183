//! A pair of network links: one end here, the other in a network namespace of its own beside this one. Needs root.

use crate::base::guard::Guard;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The networks for documentation of RFC 5737: the pair takes one that this machine has no address in.
const NETS: [&str; 3] = ["192.0.2", "198.51.100", "203.0.113"];
/// The namespace ends by itself after so many seconds.
const LONGEST: &str = "1800";

/// The pair. It ends when this is dropped, and with the lab.
#[derive(Debug)]
pub(super) struct Pair {
    /// Holds the namespace; the guard ends its process group with the lab.
    holder: Child,
    near: String,
    net: &'static str,
    _guard: Guard,
}

impl Pair {
    /// Makes both ends, each with an address.
    ///
    /// # Errors
    /// What could not be made, in words: no root, no namespaces.
    pub(super) async fn new() -> Result<Self, String> {
        let near = format!("moim-a{}", std::process::id());
        let mut guard = Guard::start(None).map_err(|error| error.to_string())?;
        let net = free_net()?;
        let holder = Command::new("unshare")
            .args(["-n", "sleep", LONGEST])
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("unshare: {error}"))?;
        let watched = guard.watch(holder.id());
        let this = Self { holder, near, net, _guard: guard };
        watched.map_err(|error| error.to_string())?;
        // Until the child has its namespace.
        tokio::time::sleep(Duration::from_millis(300)).await;
        this.link()?;
        Ok(this)
    }

    fn link(&self) -> Result<(), String> {
        let (near, far) = (self.near.as_str(), self.far());
        let holder = self.group().to_string();
        let [here, there] =
            [self.near_address(), self.far_address()].map(|address| format!("{address}/30"));
        run(&["ip", "link", "add", near, "type", "veth", "peer", "name", &far])?;
        run(&["ip", "link", "set", &far, "netns", &holder])?;
        run(&["ip", "address", "add", &here, "dev", near])?;
        run(&["ip", "link", "set", near, "up"])?;
        self.run_there(&["ip", "address", "add", &there, "dev", &far])?;
        self.run_there(&["ip", "link", "set", &far, "up"])
    }

    /// The address of the end that is here.
    pub(super) fn near_address(&self) -> String {
        format!("{}.1", self.net)
    }

    /// The address of the end that is in the namespace.
    pub(super) fn far_address(&self) -> String {
        format!("{}.2", self.net)
    }

    /// The name of that end.
    pub(super) fn far(&self) -> String {
        format!("moim-b{}", std::process::id())
    }

    /// The process group that ends with the lab: for what runs in the namespace, too.
    pub(super) fn group(&self) -> u32 {
        self.holder.id()
    }

    /// What stands before a command that is to run in the namespace.
    pub(super) fn there(&self) -> [String; 2] {
        ["nsenter".into(), format!("--net=/proc/{}/ns/net", self.group())]
    }

    /// Runs a command in the namespace, which must succeed.
    pub(super) fn run_there(&self, line: &[&str]) -> Result<(), String> {
        let [enter, where_to] = self.there();
        run(&[&[enter.as_str(), &where_to], line].concat())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        // Where the far end is gone already, so is this one.
        let _ =
            Command::new("ip").args(["link", "delete", &self.near]).stderr(Stdio::null()).status();
    }
}

/// The first of [`NETS`] that no interface here has an address in.
fn free_net() -> Result<&'static str, String> {
    let shown = Command::new("ip").args(["-4", "-o", "address"]).output();
    let shown = shown.map_err(|error| format!("ip: {error}"))?;
    let taken = String::from_utf8_lossy(&shown.stdout);
    let free = NETS.into_iter().find(|net| !taken.contains(&format!(" {net}.")));
    free.ok_or_else(|| format!("no address for the link: this machine has some in {NETS:?}"))
}

/// Runs a command, which must succeed.
fn run(line: &[&str]) -> Result<(), String> {
    let output = Command::new(line[0]).args(&line[1..]).output();
    let output = output.map_err(|error| format!("{}: {error}", line[0]))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` failed: {} (links of one's own need root)", line.join(" "), why.trim()))
}
