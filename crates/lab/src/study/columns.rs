//! Columns that several tables of the studies have.

/// A column's key, title and digits.
type Declared = (&'static str, &'static str, u8);

pub(super) const PEOPLE: Declared = ("people", "people", 0);
pub(super) const LOSS: Declared = ("loss_pct", "loss %", 3);
pub(super) const GENERATOR_CPU: Declared = ("generator_cpu_cores", "generator CPU cores", 2);
pub(super) const US_PER_PACKET_OUT: Declared = ("us_per_packet_out", "server µs a packet out", 2);
/// Of any server: who gets them counts the packets.
pub(super) const US_PER_PACKET_CAME: Declared =
    ("us_per_packet_came", "server µs a packet that came", 2);
pub(super) const MOUTH_TO_EAR: Declared = ("mouth_to_ear_ms", "mouth to ear ms (95 %)", 0);
pub(super) const SERVER_CPU: Declared = ("server_cpu_pct", "server CPU %", 1);
pub(super) const SERVER_CPU_OF_SET: Declared = ("server_cpu_pct", "server CPU % of its set", 1);
pub(super) const MEAN_RATE: Declared = ("mean_rate_mbit", "mean rate Mbit/s", 1);
pub(super) const LOAD_AVERAGE: Declared = ("load_average", "load average", 2);
pub(super) const LATENCY_P99: Declared = ("latency_p99_ms", "p99 ms", 2);
pub(super) const LATE: Declared = ("late_ms", "late ms, estimated (95 %)", 1);
pub(super) const ANSWERED: Declared = ("answered_pct", "answered %", 2);

/// Cores in percent of one.
pub(super) fn percent(cores: Option<f64>) -> Option<f64> {
    cores.map(|cores| cores * 100.0)
}
