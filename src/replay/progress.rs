//! The progress bar of a replay: one line of a terminal, redrawn and removed at the end. Without an output it draws
//! nothing.

use std::io::Write;
use std::time::{Duration, Instant};

/// The time between two drawings: often enough for the eye.
const EVERY: Duration = Duration::from_millis(100);
/// The width of the bar between its brackets.
const WIDTH: usize = 30;
/// Moves to the start of the line and clears it.
const CLEAR: &str = "\r\x1b[K";

/// The bar.
pub(super) struct Progress<'a> {
    out: Option<&'a mut dyn Write>,
    total_bytes: Option<u64>,
    lines: u64,
    drawn: Option<Instant>,
}

impl<'a> Progress<'a> {
    /// A bar on `out`, for `total_bytes` if they are known.
    pub(super) fn new(out: Option<&'a mut dyn Write>, total_bytes: Option<u64>) -> Self {
        Self { out, total_bytes, lines: 0, drawn: None }
    }

    /// One more line is done, and so many bytes have been read.
    pub(super) fn advance(&mut self, bytes_read: u64) {
        self.lines += 1;
        let Some(out) = &mut self.out else { return };
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < EVERY) {
            return;
        }
        self.drawn = Some(Instant::now());
        let text = text(self.lines, bytes_read, self.total_bytes);
        // Errors of a closed terminal do not matter.
        let _ = write!(out, "{CLEAR}{text}").and_then(|()| out.flush());
    }

    /// Removes the bar.
    pub(super) fn clear(&mut self) {
        if let Some(out) = self.out.as_mut().filter(|_| self.drawn.is_some()) {
            let _ = write!(out, "{CLEAR}").and_then(|()| out.flush());
        }
    }
}

fn text(lines: u64, bytes_read: u64, total_bytes: Option<u64>) -> String {
    let Some(total) = total_bytes.filter(|total| *total > 0) else {
        return format!("lines replayed: {lines}");
    };
    let share = bytes_read.min(total) as f64 / total as f64;
    let full = (share * WIDTH as f64) as usize;
    let bar = ["#".repeat(full), "-".repeat(WIDTH - full)].concat();
    format!("[{bar}] {:3.0}%  lines replayed: {lines}", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills_and_is_taken_away() {
        assert_eq!(text(7, 0, None), "lines replayed: 7");
        assert_eq!(text(7, 0, Some(0)), "lines replayed: 7");
        assert_eq!(text(1, 50, Some(100)), "[###############---------------]  50%  lines replayed: 1");
        assert_eq!(text(2, 120, Some(100)), "[##############################] 100%  lines replayed: 2");
        let mut out = Vec::new();
        let mut progress = Progress::new(Some(&mut out), None);
        progress.advance(1);
        progress.clear();
        assert_eq!(String::from_utf8(out).unwrap(), "\r\x1b[Klines replayed: 1\r\x1b[K");
    }
}
