use super::*;

#[test]
fn the_studys_changes_are_those_of_its_figures() {
    for (key, _, before, after, change) in CHANGES {
        let of =
            |plan: &Plan| plan.reference.iter().find(|(name, _)| *name == key).map(|(_, v)| *v);
        assert_eq!((of(&PLANS[0]), of(&PLANS[3])), (Some(before), Some(after)), "{key}");
        assert!((100.0 * (after / before - 1.0) - change).abs() < 1.0, "{key}");
    }
}

#[test]
fn what_changes_is_counted_from_our_own_rows() {
    let row = |plan: &Plan, cpu| {
        Row::new("sessions", plan.name).cell("server_cpu_pct", Cell::number(cpu))
    };
    let table = shape::change_table();
    let rows = change(&[row(&PLANS[0], 7.0), row(&PLANS[3], 45.5)], &table);
    assert_eq!(rows[0].cells["change_pct"].value, Some(550.0));
    assert_eq!(rows[0].reference["change_pct"], 98.0);
    assert!(rows[1].cells["change_pct"].reason.is_some(), "no jitter was measured");
    let (theirs, ours) = ("x".into(), "y".into());
    let about = About { tables: vec![table], theirs, ours, ..About::default() };
    assert_eq!(about.gaps(&rows), Vec::<String>::new());
}

#[test]
fn every_session_of_the_study_has_its_word() {
    let words: Vec<_> = PLANS.iter().map(|plan| (plan.video, plan.verdict)).collect();
    let want = [("1080p", "danger"), ("480p", "caution"), ("360p", "stable"), ("1080p", "danger")];
    assert_eq!(words, want);
}

#[test]
fn what_was_found_names_those_who_were_there_and_nothing_unmeasured() {
    let session = |plan: &Plan, people, cpu| {
        let row = Row::new("sessions", plan.name).cell("people", Cell::number(people));
        row.cell("server_cpu_pct", Cell::number(cpu))
    };
    let mut rows = vec![session(&PLANS[0], 4.0, 7.0), session(&PLANS[3], 5.0, 9.0)];
    let free = "4 people at 1080p use 7 % of the server's CPUs and 5 use 9 % on a free network.";
    assert_eq!((found(&[]).as_str(), found(&rows).as_str()), ("", free));
    for (way, late) in [("TCP", 60.0), ("TCP as the study's server", 900.0)] {
        let row = Row::new("tcp", format!("10 people, {way}"));
        rows.push(row.cell("loss_pct", Cell::number(1.0)).cell("delay_ms", Cell::number(late)));
    }
    let by_tcp = found(&rows);
    assert!(by_tcp.contains("loses 1 % and delays sound by 900 ms"), "{by_tcp}");
    assert!(by_tcp.contains("moim by TCP delays it by 60 ms"), "{by_tcp}");
}
