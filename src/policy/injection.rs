//! Injection, to be written.
mod escapes;
mod fold;
mod lookalikes;
mod rules;
mod scan;
mod window;

#[cfg(test)]
mod tryout {
    use super::rules::Kind;
    use std::collections::BTreeMap;
    use std::time::Instant;

    #[test]
    fn over_the_corpus() {
        let Ok(folder) = std::env::var("TOOLREIN_CORPUS") else { return };
        let text = std::fs::read_to_string(format!("{folder}/injections.jsonl")).unwrap();
        let half: u8 = std::env::var("HALF").ok().and_then(|h| h.parse().ok()).unwrap_or(2);
        let mut table: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let show = std::env::var("SHOW").is_ok();
        for line in text.lines() {
            let v: serde_json::Value = serde_json::from_str(line).unwrap();
            let id = v["id"].as_str().unwrap();
            let h = id.bytes().fold(0xcbf29ce484222325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100000001b3));
            if half != 2 && (h >> 20) as u8 % 2 != half { continue; }
            let t = v["tool_result"].as_str().unwrap();
            let f = super::scan::scan(t);
            let e = table.entry(format!("{}/{}", v["source"].as_str().unwrap(), v["attack"].as_str().unwrap())).or_default();
            e.0 += 1;
            let flagged = f.score >= 3;
            e.1 += usize::from(flagged);
            let injected = v["injected"].as_bool().unwrap();
            if show && flagged != injected { println!("MISS {id} {} {f:?}", f.has(Kind::Invisible)); }
        }
        for (k, (n, f)) in table { println!("{k:<50} {n:>5} {f:>5} {:>6.1}", 100.0 * f as f64 / n as f64); }
    }

    #[test]
    fn over_transcripts() {
        let Ok(folder) = std::env::var("TOOLREIN_CORPUS") else { return };
        let text = std::fs::read_to_string(format!("{folder}/transcripts.jsonl")).unwrap();
        let (mut n, mut f, mut bytes) = (0, 0, 0);
        let mut took = std::time::Duration::ZERO;
        for line in text.lines() {
            let v: serde_json::Value = serde_json::from_str(line).unwrap();
            for m in v["messages"].as_array().unwrap() {
                if m["role"] != "tool" { continue; }
                let Some(t) = m["content"].as_str() else { continue };
                let at = Instant::now();
                let found = super::scan::scan(t);
                took += at.elapsed();
                bytes += t.len();
                n += 1;
                if found.score >= 3 { f += 1; println!("FP {} {:?} {}", v["id"], found, &t[..t.floor_char_boundary(200)]); }
            }
        }
        println!("{n} results, {f} flagged, {:.0} MB/s over {bytes}", bytes as f64 / took.as_secs_f64() / 1e6);
    }

    #[test]
    fn over_files() {
        let Ok(list) = std::env::var("FILES") else { return };
        let mut table: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let mut took = std::time::Duration::ZERO;
        let mut bytes = 0;
        for path in std::fs::read_to_string(list).unwrap().lines() {
            let Ok(t) = std::fs::read_to_string(path) else { continue };
            if t.len() > 200_000 { continue; }
            let at = Instant::now();
            let found = super::scan::scan(&t);
            took += at.elapsed();
            bytes += t.len();
            let ext = path.rsplit('.').next().unwrap().chars().take(6).collect::<String>();
            let e = table.entry(ext).or_default();
            e.0 += 1;
            if found.score >= 3 { e.1 += 1; println!("FP {path} {found:?}"); }
        }
        for (k, (n, f)) in &table { if *n > 20 { println!("{k:<10} {n:>6} {f:>5} {:>6.2}%", 100.0 * *f as f64 / *n as f64); } }
        let (n, f) = table.values().fold((0, 0), |s, t| (s.0 + t.0, s.1 + t.1));
        println!("{n} files, {f} flagged, {:.0} MB/s over {bytes}", bytes as f64 / took.as_secs_f64() / 1e6);
    }
}
