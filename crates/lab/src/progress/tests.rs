use super::*;
use crate::judge::threshold::{Condition, Threshold};
use crate::record::{GeneratorUsage, PersonKind, SampleRecord, ServerUsage};
use crate::testing::audio_row;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::style::Color;
use wire::QualitySample;

fn threshold(metric: &'static str, condition: &str) -> Threshold {
    let condition = Condition::parse(condition).expect(condition);
    Threshold { metric, condition, from: Duration::ZERO, abort: None }
}

fn about() -> About {
    About {
        name: "evening".into(),
        target: "http://127.0.0.1:7880".into(),
        duration: Duration::from_secs(60),
        joining: Duration::from_secs(6),
        people: 12,
        sockets: 0,
        thresholds: vec![
            threshold("mos_cq", "user_p5 > 4"),
            threshold("loss_pct", "user_p95 < 1"),
            threshold("freeze_ratio", "user_p95 < 0.1"),
        ],
    }
}

/// A window's sample; person `n` loses `n` of 100 packets.
fn sample(n: u64, t_ms: u64) -> Arc<SampleRecord> {
    let mut row = audio_row("p", "t", 100 - n);
    (row.packets_lost, row.loss_pct) = (n, Some(n as f64));
    row.mos_cq = Some(4.5 - n as f64 / 10.0);
    (row.jitter_ms, row.mouth_to_ear_ms) = (Some(1.5), Some(61.0 + n as f64));
    let received = vec![row];
    let sample = QualitySample { rtt_ms: Some(0.8), received, ..QualitySample::default() };
    Arc::new(SampleRecord { t_ms, person: format!("bot-{n}"), kind: PersonKind::Bot, sample })
}

fn machine() -> MachineRecord {
    let threads = [("media-0", 0.314), ("control-0", 0.01), ("signaling", 0.004)];
    let server = ServerUsage {
        cpu_cores: Some(0.42),
        threads: threads.map(|(name, cores)| (name.to_owned(), cores)).into(),
        rss_mib: Some(41.2),
        packets_in_per_s: Some(1_240.0),
        packets_out_per_s: Some(12_930.0),
        mbit_in_per_s: Some(3.1),
        mbit_out_per_s: Some(35.2),
        drops: [("media/no_slot".to_owned(), 7)].into(),
        ..ServerUsage::default()
    };
    let generator = GeneratorUsage {
        cpu_cores: 0.6,
        threads: [("bots-0".to_owned(), 0.51)].into(),
        busiest_thread: Some(("bots-0".into(), 0.51)),
        timer_lag_ms_p99: 0.3,
        packets_out_per_s: Some(1_240.0),
        packets_in_per_s: Some(12_930.0),
        ..GeneratorUsage::default()
    };
    MachineRecord { t_ms: 30_000, server: Some(server), generator, ..MachineRecord::default() }
}

/// Twelve people after 30 of 60 s.
fn under_way() -> Standing {
    let mut standing = Standing::new(about());
    let both = [27_000, 30_000].into_iter().flat_map(|t_ms| (1..=12).map(move |n| sample(n, t_ms)));
    let news = News {
        samples: both.collect(),
        notes: vec!["12.0 s  bot-3: socket lost".into()],
        connected: 11,
        joined: 12,
        faults: 1,
        ..News::default()
    };
    standing.take(Duration::from_secs(30), Phase::Under, Now::default(), news);
    standing.machine(machine());
    standing.judge();
    standing
}

fn drawn(standing: &Standing, width: u16, height: u16, colours: bool) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("terminal");
    terminal.draw(|frame| view::draw(frame, standing, colours)).expect("drawn");
    terminal.backend().buffer().clone()
}

fn lines(standing: &Standing, width: u16, height: u16) -> Vec<String> {
    let buffer = drawn(standing, width, height, true);
    let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
    (0..height).map(|y| row(y).trim_end().to_owned()).collect()
}

fn line_with<'a>(lines: &'a [String], part: &str) -> &'a str {
    let found = lines.iter().find(|line| line.contains(part));
    found.unwrap_or_else(|| panic!("{part:?} in\n{}", lines.join("\n")))
}

#[test]
fn everything_stands_on_a_usual_terminal() {
    let lines = lines(&under_way(), 80, 24);
    assert!(lines[0].starts_with(" evening  http://127.0.0.1:7880"), "{}", lines[0]);
    assert!(lines[0].ends_with("q or Ctrl-C ends the run"));
    assert!(lines[1].starts_with(" steady ") && lines[1].ends_with("30 of 60 s"), "{}", lines[1]);
    let (done, left) = (lines[1].matches('━').count(), lines[1].matches('─').count());
    assert!(done.abs_diff(left) <= 1, "half of the bar: {done} and {left}");
    assert_eq!(lines[2], " people   11 of 12 connected, 12 joined   1 fault");
    let first = lines.iter().position(|line| line.starts_with(" person")).expect("heads") + 1;
    assert!(lines[first - 2].contains("people, the worst 7 of 12"), "{}", lines.join("\n"));
    let words: Vec<&str> = lines[first].split_whitespace().collect();
    assert_eq!(words, ["bot-12", "3.30", "12.0", "–", "73.0", "1.50", "0.80"]);
    assert!(lines[first + 1].starts_with(" bot-11"));
    assert_eq!(line_with(&lines, "mos_cq"), " fails mos_cq user_p5 > 4  3.30");
    assert_eq!(
        line_with(&lines, "freeze_ratio"),
        " –     freeze_ratio user_p95 < 0.1  no sample yet"
    );
    for part in
        ["0.42 cores  41 MiB  35.2 Mbit/s", "media-0 31 %  control-0 1 %", "1.24k in, 12.9k out /s"]
    {
        line_with(&lines, part);
    }
    line_with(&lines, "7 media/no_slot");
    line_with(&lines, "healthy timers 0.30 ms late");
    assert_eq!(lines[22], " 12.0 s  bot-3: socket lost");
}

#[test]
fn a_wide_terminal_has_thresholds_beside_people() {
    let lines = lines(&under_way(), 120, 40);
    let both = line_with(&lines, "bot-12");
    assert!(both.ends_with("fails loss_pct user_p95 < 1  12.0"), "{both}");
    let bots = lines.iter().filter(|line| line.starts_with(" bot-")).count();
    assert_eq!(bots, 10, "{}", lines.join("\n"));
    line_with(&lines, "3.10 in, 35.2 out Mbit/s");
}

#[test]
fn small_terminals_show_what_matters_most_and_none_panics() {
    for standing in [Standing::new(about()), Standing::default(), under_way()] {
        for (width, height) in (1..=130).step_by(3).flat_map(|w| (1..=45).map(move |h| (w, h))) {
            lines(&standing, width, height);
        }
    }
    let small = lines(&under_way(), 40, 12);
    assert!(small[2].contains("11 of 12"), "{small:?}");
    assert!(line_with(&small, "bot-12").contains("3.30"), "the worst is there: {small:?}");
    assert!(line_with(&small, "mos_cq").contains("fails"), "what fails is there: {small:?}");
    let tiny = lines(&under_way(), 40, 2);
    assert_eq!(tiny[0], "30 of 60 s  11 of 12 people  1 fault");
    let narrow = lines(&under_way(), 24, 24);
    let words: Vec<&str> = line_with(&narrow, "bot-12").split_whitespace().collect();
    assert_eq!(words, ["bot-12", "3.30"], "whole columns only");
}

#[test]
fn before_the_first_sample_nothing_is_claimed() {
    let lines = lines(&Standing::new(about()), 80, 24);
    assert!(lines[1].starts_with(" starting"));
    assert_eq!(lines[2], " people   0 of 12 connected, 0 joined   no faults");
    assert!(line_with(&lines, "loss_pct").ends_with("no sample yet"));
    assert!(!lines.iter().any(|line| line.contains(" ok ") || line.contains("healthy")));
    line_with(&lines, "nothing to note");
}

/// So many are up; each second 830 of 833 messages are answered.
fn sockets(live: u32) -> Now {
    let (offered_per_s, answered_per_s) = (833.0, 830.0);
    Now { live, offered_per_s, answered_per_s, p99_ms: Some(4.8), ..Now::default() }
}

#[test]
fn sockets_beside_people_have_a_line_of_their_own() {
    let mut standing = Standing::new(About { sockets: 5_000, ..about() });
    let before = lines(&standing, 80, 24);
    assert_eq!(before[3], " sockets  0 of 5000 open");
    standing.take(Duration::from_secs(9), Phase::Under, sockets(4_980), News::default());
    let now = lines(&standing, 80, 24);
    assert!(now[2].starts_with(" people   0 of 12 connected"), "{}", now[2]);
    assert_eq!(now[3], " sockets  4980 of 5000 open, 830 of 833 messages/s answered, p99 4.80 ms");
}

#[test]
fn thresholds_on_sockets_are_judged_by_what_was_counted_so_far() {
    use crate::observe::sockets::SocketCounts;
    let us = hdrhistogram::Histogram::new_with_max(1_000_000, 3).expect("bounds");
    let counts = SocketCounts {
        pong_us: us.clone(),
        connect_us: us,
        pong_of_each_ms: Vec::new(),
        answered_of_each_pct: Vec::new(),
        tried: 9,
        lost: 2,
    };
    let thresholds = vec![threshold("lost", "max == 0")];
    let mut standing = Standing::new(About { thresholds, sockets: 9, ..about() });
    let now = Now { counts: [(Duration::ZERO, counts)].into(), ..sockets(7) };
    standing.take(Duration::from_secs(9), Phase::Under, now, News::default());
    standing.judge();
    assert_eq!(line_with(&lines(&standing, 80, 24), "lost max"), " fails lost max == 0  2.00");
    assert!(standing.line().contains("p99 4.80 ms  fails: lost max == 0 (2.00)"));
}

#[test]
fn sockets_alone_have_no_people() {
    let about = About { people: 0, sockets: 5_000, thresholds: Vec::new(), ..about() };
    let mut standing = Standing::new(about);
    standing.take(Duration::from_secs(9), Phase::Under, sockets(4_980), News::default());
    let lines = lines(&standing, 80, 24);
    let answers = "830 of 833 messages/s answered, p99 4.80 ms";
    assert_eq!(lines[2], " sockets  4980 of 5000 open   no faults");
    assert_eq!(lines[3], format!(" now      {answers}"));
    assert!(!lines.iter().any(|line| line.contains("people")), "{}", lines.join("\n"));
    assert_eq!(
        standing.line(),
        format!("9 of 60 s  steady  4980 of 5000 sockets connected  {answers}")
    );
}

#[test]
fn without_colours_words_say_it_all() {
    let plain = drawn(&under_way(), 80, 24, false);
    let coloured = drawn(&under_way(), 80, 24, true);
    assert!(plain.content().iter().all(|cell| cell.fg == Color::Reset && cell.bg == Color::Reset));
    assert!(coloured.content().iter().any(|cell| cell.fg == Color::Red));
    let text = |buffer: &Buffer| buffer.content().iter().map(|c| c.symbol()).collect::<String>();
    assert_eq!(text(&plain), text(&coloured));
}

#[test]
fn who_receives_nothing_is_the_worst_and_who_has_left_is_gone() {
    let mut standing = under_way();
    let mut silent = Arc::unwrap_or_clone(sample(1, 42_000));
    silent.person = "bot-20".into();
    silent.sample.received.clear();
    let mut samples: Vec<_> = (1..=11).map(|n| sample(n, 42_000)).collect();
    samples.push(Arc::new(silent));
    let news = News { samples, ..News::default() };
    standing.take(Duration::from_secs(42), Phase::Under, Now::default(), news);
    let (worst, all) = standing.worst(2);
    assert_eq!(worst[0].name, "bot-20");
    assert_eq!((worst[1].name.as_str(), all), ("bot-11", 12), "bot-12 gives samples no more");
    line_with(&lines(&standing, 80, 24), "silent");
}

#[test]
fn the_generator_at_its_limit_says_why() {
    let mut standing = under_way();
    let mut record = machine();
    record.generator.timer_lag_ms_p99 = 7.25;
    standing.machine(record);
    line_with(&lines(&standing, 80, 24), " limit   timers fire 7.25 ms late");
    assert!(standing.line().ends_with("generator at its limit: timers fire 7.25 ms late"));
    standing.machine(machine());
    line_with(&lines(&standing, 80, 24), "now; limit in 1 of 3 windows");
}

#[test]
fn thresholds_are_judged_once_a_window() {
    let mut standing = under_way();
    let before = standing.line();
    assert!(before.contains("fails: mos_cq user_p5 > 4 (3.30) and 1 more"), "{before}");
    let news = News { samples: vec![sample(100, 33_000)], ..News::default() };
    standing.take(Duration::from_secs(33), Phase::Under, Now::default(), news);
    standing.judge();
    assert!(standing.line().contains("(3.30) and 1 more"), "not again so soon");
}

#[test]
fn plain_lines_are_ten_seconds_apart_and_notes_come_at_once() {
    let mut standing = Standing::new(About { thresholds: Vec::new(), ..about() });
    let (mut next, mut out) = (None, Vec::new());
    write_lines(&mut standing, &mut next, false, &mut out);
    assert!(out.is_empty(), "nothing is known yet");
    for second in 0..25 {
        let notes = if second == 7 { vec!["7.0 s  oh".to_owned()] } else { Vec::new() };
        let news = News { notes, connected: 9, ..News::default() };
        standing.take(Duration::from_secs(second), Phase::Under, Now::default(), news);
        write_lines(&mut standing, &mut next, false, &mut out);
    }
    let news = News { notes: vec!["24.5 s  the last".into()], ..News::default() };
    standing.take(Duration::from_secs(31), Phase::Leaving, Now::default(), news);
    write_lines(&mut standing, &mut next, true, &mut out);
    let want = "0 of 60 s  joining  9 of 12 people connected\n\
                7.0 s  oh\n\
                10 of 60 s  steady  9 of 12 people connected\n\
                20 of 60 s  steady  9 of 12 people connected\n\
                24.5 s  the last\n";
    assert_eq!(String::from_utf8(out).expect("text"), want);
}

#[test]
fn after_the_view_the_last_notes_are_kept() {
    let mut standing = Standing::new(about());
    let notes = (0..30).map(|n| format!("note {n}")).collect();
    standing.take(Duration::ZERO, Phase::Under, Now::default(), News { notes, ..News::default() });
    standing.keep_last_notes(2);
    let kept = standing.take_notes();
    assert_eq!(kept, ["(28 earlier ones are in events.jsonl)", "note 28", "note 29"]);
    standing.keep_last_notes(2);
    assert!(standing.take_notes().is_empty());
}

#[test]
fn where_there_is_no_terminal_the_thread_ends_with_the_run() {
    let progress = Progress::start(about(), true);
    progress.update(Duration::from_secs(1), Phase::Under, Now::default(), News::default());
    progress.machine(&machine());
    let shared = Arc::clone(&progress.shared);
    progress.finish();
    assert!(shared.with(|inbox| inbox.closed));
}
