use super::*;

const BASE: &str = "name: x\nserve: {}\nduration: 20s\nrooms: [{ people: { bot: 2 } }]\n";

fn scenario(more: &str) -> Result<Scenario, String> {
    Scenario::parse(&format!("{BASE}{more}"), "x").map_err(|problems| problems.to_string())
}

#[test]
fn each_is_combined_with_each() {
    let scenario = scenario(
        "networks: [{ name: mobile, delay: 60ms }, { name: home, delay: 9ms, share_pct: 50 }]\n\
         matrix: { transport: [udp, tcp], network: [free, mobile, home] }\n",
    )
    .expect("shares of a matrix do not add up");
    let all = scenario.combinations();
    let told = |(name, cell): &Combination| match cell {
        Ok(cell) => format!("{name}: {:?} {}", cell.protocol, cell.networks.len()),
        Err(why) => format!("{name}: {why}"),
    };
    let told: Vec<String> = all.iter().map(told).collect();
    let want = [
        "udp, free: Udp 0",
        "udp, mobile: Udp 1",
        "udp, home: Udp 1",
        "tcp, free: Tcp 0",
        "tcp, mobile: the lab's networks carry udp alone",
        "tcp, home: the lab's networks carry udp alone",
    ];
    assert_eq!(told, want);
    let home = all[2].1.as_ref().expect("a scenario");
    assert_eq!((home.networks[0].share_pct, &home.matrix), (50.0, &None));
    assert!(home.text.starts_with("# of the matrix: udp, home\nname: x"));
}

#[test]
fn what_is_not_asked_for_stays() {
    let more = "networks: [{ name: far, delay: 60ms }]\nmatrix: { transport: [udp] }\n";
    let scenario = scenario(more).expect("a scenario");
    let all = scenario.combinations();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].1.as_ref().expect("udp").networks.len(), 1);
}

#[test]
fn what_cannot_be_is_told() {
    for (more, part) in [
        ("matrix: {}\n", "write `transport: [udp, tcp]`"),
        ("matrix: { network: [mobile] }\n", "add `networks: [{ name: mobile"),
        (
            "networks: [{ name: home }]\nmatrix: { network: [free, mobile] }\n",
            "write free or one of home",
        ),
        ("matrix: { transport: [udp, udp] }\n", "write each once"),
        ("networks: [{ name: home }]\nmatrix: { transport: [tcp] }\n", "add udp to `transport`"),
        ("networks: [{ name: free }]\nmatrix: { network: [free] }\n", "another name"),
        (
            "events: [{ at: 5s, do: change_network, network: home, delay: 1ms }]\n\
             networks: [{ name: home }]\nmatrix: { network: [free, home] }\n",
            "home",
        ),
    ] {
        let told = scenario(more).expect_err(more);
        assert!(told.contains(part), "{more}: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}
