//! How the view looks: a pure function of where the run stands and of the terminal's size.
//!
//! From the top: what runs and how far it is; people, the worst first; thresholds; server and
//! generator; notes. A small terminal shows fewer of them, from the bottom up.

use super::standing::{PersonLine, Standing};
use crate::base::short;
use crate::judge::threshold::ThresholdResult;
use crate::record::ServerUsage;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};
use std::collections::BTreeMap;

/// Columns below which there is no view.
pub const MIN_WIDTH: u16 = 20;
/// Lines below which there is no view.
pub const MIN_HEIGHT: u16 = 3;

/// People at most.
const PEOPLE: u16 = 10;
/// From so many columns on thresholds stand beside people.
const WIDE: u16 = 116;
/// The columns of thresholds there.
const BESIDE: u16 = 50;
/// Lines of server and generator.
const MACHINE: u16 = 4;
/// From so many lines on traffic has one of its own.
const TALL: u16 = 28;
/// From so many lines on an empty one stands between the parts.
const AIRY: u16 = 32;

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, standing: &Standing, colours: bool) {
    let area = frame.area();
    let look = Look { colours, air: air(area) };
    let heights = Heights::of(area, standing);
    let [head, people, thresholds, machine, notes] = Layout::vertical(heights.0).areas(area);
    draw_head(frame, head, standing, look);
    if area.width >= WIDE && people.height > 0 {
        let [left, right] =
            Layout::horizontal([Constraint::Min(0), Constraint::Length(BESIDE)]).areas(people);
        draw_people(frame, left, standing, look);
        draw_thresholds(frame, right, standing, look);
    } else {
        draw_people(frame, people, standing, look);
        draw_thresholds(frame, thresholds, standing, look);
    }
    draw_machine(frame, machine, standing, look);
    draw_notes(frame, notes, standing, look);
}

/// Empty lines before a part.
fn air(area: Rect) -> u16 {
    u16::from(area.height >= AIRY)
}

/// Heights of head, people, thresholds, machine and notes.
struct Heights([Constraint; 5]);

impl Heights {
    fn of(area: Rect, standing: &Standing) -> Self {
        let mut left = area.height;
        let mut take = |wanted: u16, rest: u16| {
            let taken = wanted.min(left.saturating_sub(rest));
            // A title with nothing below it says nothing.
            let taken = if taken < 2 && wanted > 1 { 0 } else { taken };
            left -= taken;
            taken
        };
        let has_people = standing.about().people > 0;
        let everyone = u16::try_from(standing.about().people).unwrap_or(PEOPLE).min(PEOPLE);
        let count = u16::try_from(standing.about().thresholds.len()).unwrap_or(u16::MAX);
        let beside = area.width >= WIDE && has_people;
        // Title and heads of columns stand above people; some may be worse off than the first two.
        let least_people = if has_people { 4 } else { 0 };
        let head = take(head_lines(standing), 0).max(area.height.min(1));
        let thresholds = match count {
            0 => 0,
            _ if beside => 0,
            _ => take(count.min(6) + 1 + air(area), least_people),
        };
        let traffic = u16::from(area.height >= TALL);
        let machine = take(MACHINE + 1 + traffic + air(area), least_people);
        let notes_least = if area.height >= 20 { 3 } else { 0 };
        let rows = if beside { everyone.max(count.min(PEOPLE + 1)) } else { everyone };
        let people = if has_people { take(rows.max(2) + 2 + air(area), notes_least) } else { 0 };
        let heights = [head, people, thresholds, machine].map(Constraint::Length);
        let [head, people, thresholds, machine] = heights;
        Self([head, people, thresholds, machine, Constraint::Min(0)])
    }
}

/// Colours, where they are wanted; what they say stands in words or figures too.
#[derive(Debug, Clone, Copy)]
struct Look {
    colours: bool,
    /// Empty lines before a part.
    air: u16,
}

impl Look {
    fn of(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn good(self) -> Style {
        self.of(Color::Green)
    }

    fn fair(self) -> Style {
        self.of(Color::Yellow)
    }

    fn bad(self) -> Style {
        self.of(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn quiet(self) -> Style {
        if self.colours {
            Style::new().fg(Color::DarkGray)
        } else {
            Style::new().add_modifier(Modifier::DIM)
        }
    }

    /// A figure that is fair from one limit on and bad from another, upwards.
    fn upwards(self, value: f64, fair: f64, bad: f64) -> Style {
        match value {
            v if v >= bad => self.bad(),
            v if v >= fair => self.fair(),
            _ => Style::new(),
        }
    }
}

/// The room below a part's title; none where nothing would stand there.
fn titled(frame: &mut Frame<'_>, area: Rect, title: String, look: Look) -> Rect {
    let height = area.height.saturating_sub(look.air);
    let area = Rect { y: area.y + area.height - height, height, ..area };
    let style = Style::new().fg(Color::Reset).add_modifier(Modifier::BOLD);
    let title = Span::styled(format!(" {title} "), style);
    let block = Block::new().borders(Borders::TOP).border_style(look.quiet()).title(title);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    inner
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, standing: &Standing, look: Look) {
    let about = standing.about();
    let time = format!("{} of {} s", standing.elapsed().as_secs(), about.duration.as_secs());
    if area.height < 3 {
        let (connected, _) = standing.heads();
        let text = format!("{time}  {connected} of {} people  {}", about.people, faults(standing));
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let line = |at: u16| Rect { y: area.y + at, height: 1, ..area };
    draw_what(frame, line(0), standing, look);
    draw_bar(frame, line(1), standing, &time, look);
    draw_heads(frame, line(2), standing, look);
    if area.height > 3 {
        frame.render_widget(Line::from(sockets_in_words(standing)), line(3));
    }
}

/// Sockets have a line of their own.
fn head_lines(standing: &Standing) -> u16 {
    3 + u16::from(standing.about().sockets > 0)
}

/// ` now      830 of 833 messages/s answered, p99 4.80 ms`; beside people who is open, too.
fn sockets_in_words(standing: &Standing) -> String {
    let answers = standing.answers();
    match standing.about().people {
        0 => format!(" now      {}", answers.unwrap_or_else(|| "no message yet".into())),
        _ => {
            let answers = answers.map_or(String::new(), |answers| format!(", {answers}"));
            format!(" sockets  {}{answers}", open_sockets(standing))
        }
    }
}

fn open_sockets(standing: &Standing) -> String {
    format!("{} of {} open", standing.sockets().live, standing.about().sockets)
}

fn draw_what(frame: &mut Frame<'_>, area: Rect, standing: &Standing, look: Look) {
    let about = standing.about();
    let help = "q or Ctrl-C ends the run ";
    let name = Span::styled(format!(" {}", about.name), Style::new().add_modifier(Modifier::BOLD));
    let line = Line::from(vec![name, Span::styled(format!("  {}", about.target), look.quiet())]);
    let fits = line.width() + help.len() < usize::from(area.width);
    frame.render_widget(line, area);
    if fits {
        let help = Line::from(Span::styled(help, look.quiet()));
        frame.render_widget(help.right_aligned(), area);
    }
}

/// `steady  ━━━━━━────  32 of 60 s`.
fn draw_bar(frame: &mut Frame<'_>, area: Rect, standing: &Standing, time: &str, look: Look) {
    let label = format!(" {:<9}", standing.phase());
    let room = usize::from(area.width).saturating_sub(label.len() + time.len() + 3);
    let duration = standing.about().duration.as_secs_f64();
    let share = (standing.elapsed().as_secs_f64() / duration.max(f64::EPSILON)).clamp(0.0, 1.0);
    let done = (share * room as f64).round() as usize;
    let line = Line::from(vec![
        Span::styled(label, Style::new().add_modifier(Modifier::BOLD)),
        Span::styled("━".repeat(done), look.of(Color::Cyan)),
        Span::styled("─".repeat(room - done), look.quiet()),
        Span::raw(format!("  {time}")),
    ]);
    frame.render_widget(line, area);
}

fn faults(standing: &Standing) -> String {
    match standing.faults() {
        0 => "no faults".into(),
        1 => "1 fault".into(),
        n => format!("{n} faults"),
    }
}

fn draw_heads(frame: &mut Frame<'_>, area: Rect, standing: &Standing, look: Look) {
    let (about, (connected, joined)) = (standing.about(), standing.heads());
    let mut spans = Vec::new();
    if about.people > 0 {
        let style = if connected == about.people { look.good() } else { Style::new() };
        spans.push(Span::raw(" people   "));
        spans.push(Span::styled(format!("{connected} of {} connected", about.people), style));
        spans.push(Span::raw(format!(", {joined} joined")));
    }
    if about.sockets > 0 && about.people == 0 {
        spans.push(Span::raw(format!(" sockets  {}", open_sockets(standing))));
    }
    let style = if standing.faults() == 0 { Style::new() } else { look.bad() };
    spans.push(Span::styled(format!("   {}", faults(standing)), style));
    frame.render_widget(Line::from(spans), area);
}

/// A column: its head, its width, how it reads a person, and when it looks bad.
struct Column {
    head: &'static str,
    width: u16,
    pick: fn(&PersonLine) -> Option<f64>,
    style: fn(Look, f64) -> Style,
}

/// In the order in which they matter: a narrow terminal shows the first. Limits: MOS by ITU-T G.107
/// annex B (below 3.6 many, below 3.1 nearly all are dissatisfied), delay by G.114 (150 and 400 ms).
const COLUMNS: [Column; 6] = [
    Column {
        head: "MOS-CQ",
        width: 6,
        pick: |line| line.mos_cq,
        style: |look, v| look.upwards(-v, -3.6, -3.1),
    },
    Column {
        head: "loss %",
        width: 6,
        pick: |line| line.loss_pct,
        style: |look, v| look.upwards(v, 1.0, 5.0),
    },
    Column {
        head: "freeze",
        width: 6,
        pick: |line| line.freeze_ratio,
        style: |look, v| look.upwards(v, 0.01, 0.05),
    },
    Column {
        head: "mouth-ear ms",
        width: 12,
        pick: |line| line.mouth_to_ear_ms,
        style: |look, v| look.upwards(v, 150.0, 400.0),
    },
    Column {
        head: "jitter ms",
        width: 9,
        pick: |line| line.jitter_ms,
        style: |look, v| look.upwards(v, 30.0, 60.0),
    },
    Column {
        head: "rtt ms",
        width: 6,
        pick: |line| line.rtt_ms,
        style: |look, v| look.upwards(v, 200.0, 400.0),
    },
];

fn draw_people(frame: &mut Frame<'_>, area: Rect, standing: &Standing, look: Look) {
    if area.height < 2 + look.air {
        return;
    }
    let room = usize::from(area.height.saturating_sub(2 + look.air)).min(PEOPLE.into());
    let (worst, all) = standing.worst(room);
    let title = match all {
        n if n > worst.len() => format!("people, the worst {} of {n}", worst.len()),
        _ => "people, the worst first".to_owned(),
    };
    let inner = titled(frame, area, title, look);
    if worst.is_empty() {
        frame.render_widget(Line::styled(" no sample yet", look.quiet()), inner);
        return;
    }
    let longest = worst.iter().map(|line| line.name.chars().count()).max().unwrap_or(0);
    let name_width = (longest as u16).clamp(8, 16) + 1;
    let mut used = name_width;
    let columns: Vec<&Column> = COLUMNS
        .iter()
        .take_while(|column| {
            used += column.width + 2;
            used <= inner.width
        })
        .collect();
    let heads = columns.iter().map(|column| right(column.head.into(), look.quiet()));
    let head = Row::new(std::iter::once(Cell::new(" person").style(look.quiet())).chain(heads));
    let rows = worst.iter().map(|line| {
        let name_style = if line.received { Style::new() } else { look.bad() };
        let name = Cell::new(format!(" {}", line.name)).style(name_style);
        let figures = columns.iter().enumerate().map(|(at, column)| match (column.pick)(line) {
            // Loss is unknown, too, to who receives nothing: that is said instead.
            None if at == 0 && !line.received => right("silent".into(), look.bad()),
            None => right("–".into(), look.quiet()),
            Some(value) => right(short(value), (column.style)(look, value)),
        });
        Row::new(std::iter::once(name).chain(figures))
    });
    let widths = std::iter::once(name_width).chain(columns.iter().map(|column| column.width));
    let table = Table::new(rows, widths.map(Constraint::Length)).header(head).column_spacing(2);
    frame.render_widget(table, inner);
}

fn right(text: String, style: Style) -> Cell<'static> {
    Cell::new(Line::from(text).right_aligned()).style(style)
}

fn draw_thresholds(frame: &mut Frame<'_>, area: Rect, standing: &Standing, look: Look) {
    let results = standing.thresholds();
    if area.height < 2 + look.air || results.is_empty() {
        return;
    }
    let inner = titled(frame, area, "thresholds so far".into(), look);
    let room = usize::from(inner.height);
    let shown = if results.len() > room { room.saturating_sub(1) } else { room };
    let mut lines: Vec<Line<'_>> =
        results.iter().take(shown).map(|result| threshold_line(result, look)).collect();
    if results.len() > shown {
        lines.push(Line::styled(format!(" and {} more", results.len() - shown), look.quiet()));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}

fn threshold_line(result: &ThresholdResult, look: Look) -> Line<'static> {
    let (word, style) = match result {
        ThresholdResult { value: None, .. } => ("–", look.quiet()),
        ThresholdResult { ok: true, .. } => ("ok", look.good()),
        ThresholdResult { ok: false, .. } => ("fails", look.bad()),
    };
    let value = result.value.map_or("no sample yet".to_owned(), short);
    Line::from(vec![
        Span::styled(format!(" {word:<6}"), style),
        Span::raw(result.expr.clone()),
        Span::styled(format!("  {value}"), if result.ok { Style::new() } else { style }),
    ])
}

fn draw_machine(frame: &mut Frame<'_>, area: Rect, standing: &Standing, look: Look) {
    if area.height < 2 + look.air {
        return;
    }
    let [left, right] =
        Layout::horizontal([Constraint::Percentage(50), Constraint::Percentage(50)])
            .spacing(1)
            .areas(area);
    let server = titled(frame, left, "server".into(), look);
    let generator = titled(frame, right, "generator".into(), look);
    let Some(record) = standing.last_machine() else {
        let line = Line::styled(" no sample yet", look.quiet());
        frame.render_widget(line.clone(), server);
        frame.render_widget(line, generator);
        return;
    };
    let lines = match &record.server {
        None => vec![Line::styled(" neither on this machine nor with metrics", look.quiet())],
        Some(usage) => server_lines(usage, server, look),
    };
    frame.render_widget(Paragraph::new(lines), server);
    let lines = generator_lines(standing, generator.width, look);
    frame.render_widget(Paragraph::new(lines), generator);
}

fn labelled(label: &str, text: String) -> Line<'static> {
    Line::from(format!(" {label:<8}{text}"))
}

fn server_lines(usage: &ServerUsage, area: Rect, look: Look) -> Vec<Line<'static>> {
    let known = |value: Option<f64>| value.map_or("–".to_owned(), short);
    let rate = |value: Option<f64>| value.map_or("–".to_owned(), thousands);
    let rss = usage.rss_mib.map_or("–".to_owned(), |mib| format!("{mib:.0}"));
    let mut cpu = format!("{} cores  {rss} MiB", known(usage.cpu_cores));
    let traffic = area.height > MACHINE;
    if let (false, Some(mbit)) = (traffic, usage.mbit_out_per_s) {
        cpu.push_str(&format!("  {} Mbit/s", short(mbit)));
    }
    let packets =
        format!("{} in, {} out /s", rate(usage.packets_in_per_s), rate(usage.packets_out_per_s));
    let mut dropped = labelled("drops", "none".into());
    if !usage.drops.is_empty() {
        let mut reasons: Vec<_> = usage.drops.iter().collect();
        reasons.sort_by(|a, b| b.1.cmp(a.1));
        let reasons = reasons.iter().map(|(reason, count)| format!("{count} {reason}"));
        let text = reasons.collect::<Vec<_>>().join("  ");
        dropped = labelled("drops", text).style(look.fair());
    }
    let (mbit_in, mbit_out) = (known(usage.mbit_in_per_s), known(usage.mbit_out_per_s));
    let mut lines = vec![
        labelled("cpu", cpu),
        labelled("threads", threads(&usage.threads, area.width)),
        labelled("packets", packets),
        dropped,
    ];
    if traffic {
        lines.insert(3, labelled("traffic", format!("{mbit_in} in, {mbit_out} out Mbit/s")));
    }
    lines
}

fn generator_lines(standing: &Standing, width: u16, look: Look) -> Vec<Line<'static>> {
    let Some(record) = standing.last_machine() else { return Vec::new() };
    let usage = &record.generator;
    let rate = |value: Option<f64>| value.map_or("–".to_owned(), thousands);
    let (windows, limited) = standing.windows();
    let lag = format!("timers {} ms late", short(usage.timer_lag_ms_p99));
    let health = match (standing.generator_limit(), limited) {
        (Some(reason), _) => labelled("limit", reason).style(look.bad()),
        (None, 0) => labelled("healthy", lag).style(look.good()),
        (None, n) => {
            let text = format!("now; limit in {n} of {windows} windows");
            labelled("healthy", text).style(look.fair())
        }
    };
    let packets =
        format!("{} in, {} out /s", rate(usage.packets_in_per_s), rate(usage.packets_out_per_s));
    let threads = labelled("threads", threads(&usage.threads, width));
    let cpu = labelled("cpu", format!("{} cores", short(usage.cpu_cores)));
    vec![health, cpu, threads, labelled("packets", packets)]
}

/// The busiest threads that fit: `media-0 31 %  control-0 1 %`.
fn threads(cores: &BTreeMap<String, f64>, width: u16) -> String {
    let mut busiest: Vec<_> = cores.iter().collect();
    busiest.sort_by(|a, b| b.1.total_cmp(a.1));
    let mut text = String::new();
    for (name, cores) in busiest.into_iter().filter(|(_, cores)| **cores >= 0.005) {
        let next = format!("{name} {:.0} %", cores * 100.0);
        if text.len() + next.len() + 11 > usize::from(width) {
            break;
        }
        if !text.is_empty() {
            text.push_str("  ");
        }
        text.push_str(&next);
    }
    if text.is_empty() { "idle".into() } else { text }
}

/// A rate in few digits: `940`, `12.9k`.
fn thousands(value: f64) -> String {
    match value {
        v if v >= 999_500.0 => format!("{:.1}M", v / 1e6),
        v if v >= 9_995.0 => format!("{:.1}k", v / 1e3),
        v if v >= 999.5 => format!("{:.2}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

fn draw_notes(frame: &mut Frame<'_>, area: Rect, standing: &Standing, look: Look) {
    if area.height < 2 + look.air {
        return;
    }
    let inner = titled(frame, area, "notes".into(), look);
    let notes = standing.last_notes(inner.height.into());
    let mut lines: Vec<Line<'_>> = notes.map(|note| Line::from(format!(" {note}"))).collect();
    if lines.is_empty() {
        lines.push(Line::styled(" nothing to note", look.quiet()));
    }
    frame.render_widget(Paragraph::new(lines), inner);
}
