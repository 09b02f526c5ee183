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
