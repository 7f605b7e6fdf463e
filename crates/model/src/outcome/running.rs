//! Results that say that something is not finished: a job's state, its share done, its place in a queue, the time after which to
//! ask again; as members of JSON or as a line of text. What a result reports on is read from its form, not from the
//! tool's name. Decides nothing.

use super::state_word::{
    JobState, first_words, is_progressive, is_running, is_unfinished, of_state, of_words, says_in_progress,
    words,
};
use serde_json::{Map, Value};

/// The longest JSON that is read, in bytes: a job's status may come with the end of its log.
pub(super) const LONGEST_JSON: usize = 64 << 10;
/// The longest text whose sentences are read, in bytes: a longer one is content.
const LONGEST_TEXT: usize = 600;
/// The longest text that is a status by its first word ("Queued", "Building image 3"), in bytes.
const LONGEST_BARE: usize = 120;
/// Of a longer text, so many lines of each end are read for a state such as "Status: running".
const END_LINES: usize = 3;
/// The longest name of a state in a line, in words: "Current job status".
const LONGEST_NAME: usize = 4;
/// How deep members are looked at.
const DEPTH: usize = 5;

/// Members that hold a state, as parts of their names without separators.
const STATES: [&str; 20] = [
    "status",
    "state",
    "phase",
    "stage",
    "progress",
    "estado",
    "etat",
    "état",
    "stato",
    "zustand",
    "durum",
    "statut",
    "situacao",
    "situação",
    "状态",
    "狀態",
    "状態",
    "상태",
    "статус",
    "состояние",
];
/// Members without a value until a process has ended.
const EXITS: [&str; 3] = ["exitcode", "returncode", "exitstatus"];
/// Members that are true once a process was ended from outside.
const ENDED: [&str; 2] = ["timedout", "killed"];
/// Members that say when to ask again, or how long it takes.
const WAITS: [&str; 16] = [
    "retryafter",
    "retryin",
    "pollafter",
    "pollin",
    "nextpoll",
    "nextcheck",
    "checkagain",
    "checkback",
    "queueposition",
    "positioninqueue",
    "placeinqueue",
    "jobsahead",
    "timeremaining",
    "remainingtime",
    "secondsremaining",
    "remainingseconds",
];
/// Flags that are true at the end, and flags that are true until then.
const AT_END: [&str; 8] =
    ["done", "isdone", "finished", "isfinished", "complete", "iscomplete", "completed", "ready"];
const UNTIL_END: [&str; 8] =
    ["running", "isrunning", "inprogress", "pending", "processing", "queued", "alive", "isalive"];
/// Members that hold a sentence for the reader.
const SENTENCES: [&str; 9] =
    ["message", "msg", "detail", "details", "info", "output", "text", "result", "content"];

/// Words of other languages than English for what goes on.
const GOES_ON: &[&str] = &[
    "läuft noch",
    "wird noch",
    "in bearbeitung",
    "wird ausgeführt",
    "wird gerade",
    "noch nicht fertig",
    "noch nicht abgeschlossen",
    "en cours",
    "pas encore",
    "pas terminé",
    "pas fini",
    "en attente",
    "en curso",
    "en proceso",
    "ejecutándose",
    "en ejecución",
    "aún no ha terminado",
    "procesándose",
    "em andamento",
    "em execução",
    "sendo executad",
    "sendo processad",
    "em processamento",
    "in corso",
    "in esecuzione",
    "in elaborazione",
    "nog bezig",
    "wordt uitgevoerd",
    "wordt nog",
    "nog niet klaar",
    "nadal trwa",
    "w toku",
    "w trakcie",
    "jest wykonywan",
    "körs fortfarande",
    "pågår",
    "kører stadig",
    "kjører fortsatt",
    "käynnissä",
    "çalışıyor",
    "devam ediyor",
    "işleniyor",
    "probíhá",
    "folyamatban",
    "în curs",
    "σε εξέλιξη",
    "выполняется",
    "обрабатывается",
    "в процессе",
    "в очереди",
    "виконується",
    "триває",
    "قيد التنفيذ",
    "قيد المعالجة",
    "جارٍ",
    "बाकी है",
    "चल रहा",
    "जारी है",
    "đang chạy",
    "đang xử lý",
    "đang thực hiện",
    "กำลัง",
    "sedang berjalan",
    "sedang diproses",
    "masih berjalan",
    "运行中",
    "正在运行",
    "进行中",
    "处理中",
    "执行中",
    "排队中",
    "尚未完成",
    "執行中",
    "處理中",
    "実行中",
    "処理中",
    "待機中",
    "진행 중",
    "처리 중",
    "실행 중",
    "대기 중",
];
/// Words of other languages for what failed.
const ENDS: [&str; 14] = [
    "fehler",
    "erreur",
    "error",
    "erro",
    "errore",
    "fout",
    "błąd",
    "virhe",
    "hata",
    "ошибк",
    "失败",
    "失敗",
    "실패",
    "エラー",
];

/// Whether a result that is JSON says so; `None` where it is no JSON.
pub(super) fn in_json(text: &str) -> Option<bool> {
    if !text.trim_start().starts_with(['{', '[']) {
        return None;
    }
    let value: Value = serde_json::from_str(text).ok()?;
    Some(read_value(&value, DEPTH, false) == JobState::Running)
}

/// `listed`: within a list, where flags and sentences are data.
fn read_value(value: &Value, depth: usize, listed: bool) -> JobState {
    let Some(depth) = depth.checked_sub(1) else { return JobState::Unknown };
    match value {
        Value::Object(members) => read_object(members, depth, listed),
        Value::Array(items) => {
            let is_running = |item| read_value(item, depth, true) == JobState::Running;
            if items.iter().any(is_running) { JobState::Running } else { JobState::Unknown }
        }
        // What tools return as text within JSON.
        Value::String(text) if text.trim_start().starts_with('{') => {
            serde_json::from_str(text).map_or(JobState::Unknown, |value| read_value(&value, depth, listed))
        }
        _ => JobState::Unknown,
    }
}

/// A state that is over counts for everything below it: the steps of a failed job may still be marked as pending.
fn read_object(members: &Map<String, Value>, depth: usize, listed: bool) -> JobState {
    let mut found = JobState::Unknown;
    for (key, value) in members {
        match read_member(key, value, listed) {
            JobState::Over => return JobState::Over,
            JobState::Running => found = JobState::Running,
            JobState::Unknown => {}
        }
    }
    if found == JobState::Running || has_part_done(members) || is_active_since(members) {
        return JobState::Running;
    }
    let is_running = |value| read_value(value, depth, listed) == JobState::Running;
    if members.values().any(is_running) { JobState::Running } else { JobState::Unknown }
}

fn read_member(key: &str, value: &Value, listed: bool) -> JobState {
    let name: String =
        key.chars().filter(|char| char.is_alphanumeric()).flat_map(char::to_lowercase).collect();
    let by_flag = if listed { JobState::Unknown } else { read_flag(&name, value) };
    if by_flag == JobState::Unknown { read_named_state(&name, value) } else { by_flag }
}

/// The state that a flag, an exit code, a signal or a sentence says.
fn read_flag(name: &str, value: &Value) -> JobState {
    let is = |names: &[&str]| names.contains(&name);
    match value {
        Value::Bool(true) if is(&AT_END) || is(&ENDED) => JobState::Over,
        Value::Bool(false) if is(&AT_END) => JobState::Running,
        Value::Bool(true) if is(&UNTIL_END) => JobState::Running,
        Value::Null if is(&EXITS) => JobState::Running,
        // A process that a signal ended has no exit code.
        Value::String(signal) if name == "signal" && !signal.is_empty() => JobState::Over,
        Value::String(text) if is(&SENTENCES) && says_text(text) => JobState::Running,
        _ => JobState::Unknown,
    }
}

/// The state that a member such as `status`, `progress` or `retry_after` names.
fn read_named_state(name: &str, value: &Value) -> JobState {
    let holds = |names: &[&str]| names.iter().any(|part| name.contains(part));
    match value {
        Value::Number(_) | Value::String(_) if holds(&WAITS) || name == "eta" || name == "etaseconds" => {
            let is_left = amount(value).is_some_and(|amount| amount > 0.0);
            if is_left { JobState::Running } else { JobState::Unknown }
        }
        Value::Number(_) | Value::String(_) if name.contains("progress") || is_share_done(name) => {
            read_progress(value)
        }
        // HTTP's "accepted" and "processing".
        Value::Number(code) if holds(&STATES) && matches!(code.as_u64(), Some(102 | 202)) => {
            JobState::Running
        }
        Value::String(state) if holds(&STATES) => match of_state(state) {
            JobState::Unknown if says_so_elsewhere(state) => JobState::Running,
            state => state,
        },
        _ => JobState::Unknown,
    }
}

/// How far a job is: a share below the whole, or the name of a state.
fn read_progress(value: &Value) -> JobState {
    match amount(value) {
        Some(share) if (0.0..100.0).contains(&share) && share != 1.0 => JobState::Running,
        Some(_) => JobState::Unknown,
        None => value.as_str().map_or(JobState::Unknown, of_state),
    }
}

fn is_share_done(name: &str) -> bool {
    let is_percent = name.contains("percent") || name.contains("pct");
    is_percent && ["complete", "done", "finished"].iter().any(|end| name.contains(end))
}

/// Whether an object says no more than that something is active, and when it was looked at or changed: one with a name
/// or another text is a record of a person or a thing.
fn is_active_since(members: &Map<String, Value>) -> bool {
    const ACTIVE: [&str; 3] = ["active", "alive", "live"];
    let is_state = |key: &str| STATES.contains(&key.to_ascii_lowercase().as_str());
    let is_time = |key: &str| {
        let key = key.to_ascii_lowercase();
        ["_at", "at", "time", "elapsed", "since", "seconds", "heartbeat", "ts"]
            .iter()
            .any(|end| key.ends_with(end))
    };
    let is_id = |key: &str| key.to_ascii_lowercase().ends_with("id");
    let is_active = |value: &Value| {
        value.as_str().is_some_and(|state| ACTIVE.iter().any(|known| state.eq_ignore_ascii_case(known)))
    };
    let is_plain = |(key, value): (&String, &Value)| {
        (is_state(key) && is_active(value)) || is_time(key) || is_id(key) || value.is_number()
    };
    members.iter().any(|(key, value)| is_state(key) && is_active(value))
        && members.keys().any(|key| is_time(key))
        && members.iter().all(is_plain)
}

/// Whether an object counts parts and some of them are open: `{"done":3,"total":10}`.
fn has_part_done(members: &Map<String, Value>) -> bool {
    let number = |names: &[&str]| names.iter().find_map(|name| members.get(*name)?.as_f64());
    let done = number(&["done", "completed", "processed", "finished"]);
    done.zip(number(&["total"])).is_some_and(|(done, total)| done < total)
}

/// The number at the beginning of a value: 45, "45%", "30s".
fn amount(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => {
            let text = text.trim();
            let end = text.find(|char: char| !char.is_ascii_digit() && char != '.').unwrap_or(text.len());
            text[..end].parse().ok()
        }
        _ => None,
    }
}

/// Whether a text says so.
pub(super) fn says_text(text: &str) -> bool {
    let text = text.trim();
    let is_long = text.len() > LONGEST_TEXT;
    let (first, last) = if is_long { (END_LINES, END_LINES) } else { (usize::MAX, 0) };
    let lines = text.lines().take(first).chain(text.lines().rev().take(last));
    let mut has_running_line = false;
    for state in lines.filter_map(state_of_line) {
        match state {
            JobState::Over => return false,
            JobState::Running => has_running_line = true,
            JobState::Unknown => {}
        }
    }
    if is_long || has_running_line {
        return has_running_line;
    }
    match state_of_segments(text) {
        JobState::Over => return false,
        JobState::Running => return true,
        JobState::Unknown => {}
    }
    let words = words(text);
    says_so_elsewhere(text)
        || has_running_row(text)
        || has_open_row(text)
        || (text.len() <= LONGEST_BARE && text.starts_with("[=") && says_share(text))
        || says_in_progress(&words)
        || is_unfinished(&words)
        || asks_to_wait(&words)
        || goes_on(&words)
        || (says_share(text) && words.iter().any(|word| is_progressive(word) || is_end(word)))
        || (text.len() <= LONGEST_BARE
            && words.first().is_some_and(|word| is_running(word))
            && of_words(&words) == JobState::Running)
}

/// Whether a short text says in another language than English that something goes on.
fn says_so_elsewhere(text: &str) -> bool {
    let text = text.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| text.contains(part));
    text.len() <= LONGEST_TEXT && has(GOES_ON) && !has(&ENDS)
}

/// The state in a line that names it: `Status: RUNNING`, `state=queued`, `<status>running</status>`.
fn state_of_line(line: &str) -> Option<JobState> {
    let line = line.get(..line.floor_char_boundary(200))?;
    let (name, value) = line.split_once([':', '=', '>'])?;
    let named = first_words(name, LONGEST_NAME + 1);
    if named.len() > LONGEST_NAME || !named.iter().any(|word| STATES.contains(&word.as_str())) {
        return None;
    }
    let value = value.split(['<', ',', ';', '(']).next().unwrap_or_default();
    match of_state(value.trim().trim_matches(['"', '\'', '*', '`', ' '])) {
        JobState::Unknown => says_share(value).then_some(JobState::Running),
        state => Some(state),
    }
}

/// The state that a short text names between marks: "Build 12 - Running (2m)", "[QUEUED] build 7", "Job 7: pending, at 3".
fn state_of_segments(text: &str) -> JobState {
    if text.len() > LONGEST_BARE {
        return JobState::Unknown;
    }
    let marks = ['\n', ':', ',', ';', '|', '(', ')', '[', ']', '<', '>', '–', '—', '•'];
    let segments = text.split(marks).flat_map(|segment| segment.split(" - "));
    let mut found = JobState::Unknown;
    for segment in segments.filter(|segment| !says_share(segment)) {
        let words = words(segment);
        match of_words(&words) {
            _ if words.len() > 3 => {}
            JobState::Over => return JobState::Over,
            JobState::Running if words.iter().any(|word| is_job_verb(word)) => found = JobState::Running,
            _ => {}
        }
    }
    found
}

/// Whether a table with a column of states has one that runs, as those of command lines do.
fn has_running_row(text: &str) -> bool {
    let mut lines = text.lines();
    let is_state = |word: &str| matches!(word, "STATUS" | "STATE" | "PHASE" | "STAGE");
    let has_states = lines.next().is_some_and(|head| head.split_whitespace().any(is_state));
    has_states && lines.any(|line| words(line).iter().any(|word| is_running(word)))
}

/// Whether a row of a command line's table counts parts, some of them open, and names a state that goes on:
/// `web-1 0/1 Pending 0 10s`.
fn has_open_row(text: &str) -> bool {
    let is_open = |word: &str| {
        let counts = word.split_once('/').map(|(done, all)| (done.parse::<u32>(), all.parse::<u32>()));
        matches!(counts, Some((Ok(done), Ok(all))) if done < all)
    };
    text.lines().any(|line| {
        let mut columns = line.split_whitespace().skip_while(|column| !is_open(column)).skip(1);
        columns.next().is_some_and(|state| of_state(state) == JobState::Running)
    })
}

/// "Still running", "is building", "are being created", "currently queued".
fn goes_on(words: &[String]) -> bool {
    words.iter().enumerate().any(|(at, word)| {
        let next = |distance: usize| words.get(at + distance).map_or("", String::as_str);
        match word.as_str() {
            "still" => (1..=3).any(|distance| is_running(next(distance))),
            "is" | "are" | "currently" | "now" => {
                is_job_verb(next(1)) || (next(1) == "being" && at < words.len())
            }
            _ => false,
        }
    })
}

/// Verbs of what jobs do: "it is raining" is no job.
fn is_job_verb(word: &str) -> bool {
    const VERBS: [&str; 36] = [
        "running",
        "pending",
        "progress",
        "enqueued",
        "processing",
        "building",
        "deploying",
        "executing",
        "queued",
        "starting",
        "initializing",
        "initialising",
        "loading",
        "compiling",
        "uploading",
        "downloading",
        "installing",
        "provisioning",
        "creating",
        "updating",
        "syncing",
        "indexing",
        "training",
        "rendering",
        "generating",
        "transcoding",
        "working",
        "waiting",
        "scheduled",
        "converting",
        "exporting",
        "importing",
        "migrating",
        "restarting",
        "rebooting",
        "scanning",
    ];
    VERBS.contains(&word)
}

/// "Please wait", "check back in a minute", "try again in 30 seconds", "retry after 5 s", "position 3 in the queue".
fn asks_to_wait(words: &[String]) -> bool {
    words.windows(2).enumerate().any(|(at, pair)| {
        let next = words.get(at + 2).map_or("", String::as_str);
        match (pair[0].as_str(), pair[1].as_str()) {
            ("please", "wait") | ("check", "back") | ("queue", "position") => true,
            ("try" | "check" | "ask" | "poll", "again") => matches!(next, "in" | "later" | "after" | "soon"),
            ("retry", "later") | ("202", "accepted") => true,
            ("no", "result" | "results" | "output" | "response") => next == "yet",
            ("retry", "after" | "in") => next.starts_with(|char: char| char.is_ascii_digit()),
            _ => false,
        }
    })
}

fn is_end(word: &str) -> bool {
    matches!(word, "progress" | "complete" | "completed" | "done" | "finished" | "uploaded" | "downloaded")
}

/// Whether a text has a share below 100%.
fn says_share(text: &str) -> bool {
    text.match_indices('%').any(|(at, _)| {
        let before = text[..at].trim_end();
        let start = before
            .rfind(|char: char| !char.is_ascii_digit() && char != '.')
            .map_or(0, |last| last + before[last..].chars().next().map_or(1, char::len_utf8));
        before[start..].parse::<f64>().is_ok_and(|share| share < 100.0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(text: &str) -> bool {
        in_json(text).unwrap_or_else(|| says_text(text))
    }

    #[test]
    fn results_about_a_job_that_goes_on_are_recognised() {
        for text in [
            r#"{"job":"build-7","state":"running","elapsed_seconds":30}"#,
            r#"{"status":"pending"}"#,
            r#"{"data":{"job":{"jobStatus":"IN_PROGRESS"}},"success":true}"#,
            r#"{"status":"success","data":{"status":"processing"}}"#,
            r#"[{"name":"a","status":"completed"},{"name":"b","status":"in_progress"}]"#,
            r#"{"metadata":{"name":"web"},"status":{"phase":"Pending"}}"#,
            r#"{"name":"operations/7","done":false}"#,
            r#"{"id":"x","progress":45}"#,
            r#"{"id":"x","progress":"45%"}"#,
            r#"{"progress":0.4}"#,
            r#"{"percent_complete":80}"#,
            r#"{"queue_position":4}"#,
            r#"{"error":"not there yet","retry_after":30}"#,
            r#"{"message":"The export is still running."}"#,
            r#"{"done":3,"total":10}"#,
            r#"{"content":[{"type":"text","text":"{\"state\":\"queued\"}"}]}"#,
            r#"{"code":202,"statusCode":202}"#,
            "HTTP 202 Accepted; retry later (30)",
            r#"{"status":"active","updated_at":"2026-01-01T00:07:07Z"}"#,
            r#"{"id":"j7","state":"Active","elapsed_seconds":30}"#,
            r#"{"estado":"en curso","segundos":30}"#,
            r#"{"status":"in Bearbeitung","seit":30}"#,
            "L'operazione è ancora in esecuzione (30 s)",
            "De taak is nog bezig (30 s)",
            "Zadanie nadal trwa (30 s)",
            "Görev hâlâ çalışıyor (30 sn)",
            "작업이 아직 실행 중입니다 (30초)",
            r#"{"状态":"进行中"}"#,
            r#"{"статус":"выполняется"}"#,
            r#"{"statut":"en cours"}"#,
            r#"{"pid":12,"exit_code":null,"stdout":""}"#,
            r#"{"alive":true}"#,
            "web-1 0/1 ContainerCreating 0 5s",
            "[=====>      ] 40%",
            "No result yet.",
            "Status: RUNNING",
            "Job build-7\nState: queued (position 3)\nOwner: me",
            "<status>running</status>",
            "Build is running for 9 s",
            "Job build-7 is still running.",
            "Not ready yet, attempt 9",
            "The report hasn't finished.",
            "Deployment in progress...",
            "Queued",
            "Building image 3 of 7",
            "Please wait a moment.",
            "No result so far, try again in 30 seconds.",
            "Progress: 45%",
            "45% complete",
            "Your images are being generated.",
            "Build #12 — Running (2m 13s)",
            "[QUEUED] build 7",
            "Job 7: pending, position 3 of 12",
            "NAME    READY   STATUS              RESTARTS   AGE\nweb-7d   0/1     ContainerCreating   0          5s",
        ] {
            assert!(says(text), "{text}");
        }
    }

    #[test]
    fn results_about_what_is_over_or_about_something_else_are_not() {
        for text in [
            r#"{"job":"build-7","state":"succeeded","elapsed_seconds":30}"#,
            r#"{"status":"failed","steps":[{"name":"deploy","status":"pending"}]}"#,
            r#"{"state":"failed","progress":40}"#,
            r#"{"done":true,"progress":40}"#,
            r#"{"progress":100}"#,
            r#"{"status":"active","name":"Ann"}"#,
            r#"{"status":"active","name":"Ann","updated_at":"2026-01-01T00:07:07Z"}"#,
            r#"{"status":"active"}"#,
            r#"{"estado":"terminado","segundos":30}"#,
            "Fehler: die Aufgabe läuft noch",
            r#"{"status":"ok","rows":[{"title":"x","completed":false}]}"#,
            r#"{"status":200}"#,
            r#"{"pid":12,"exit_code":0}"#,
            r#"{"rows":[{"exit_code":null}]}"#,
            "web-1 1/1 Running 0 5s",
            "3/5 stars, great shoes",
            "No messages yet to you from Ann, but 4 from Bob.",
            r#"{"discount_percent":10}"#,
            r#"{"retry_after":0}"#,
            r#"{"done":10,"total":10}"#,
            r#"{"items":["the same"],"next_cursor":"c7"}"#,
            "[]",
            "{}",
            "",
            "rain",
            "It is raining in Paris.",
            "Status: completed",
            "State: FAILED\nStill running: 0",
            "Nothing new at 10:00:07.",
            "Build #12 — Failed (2m 13s)",
            "Paris: raining",
            "Best running shoes of the year, for men",
            "NAME    READY   STATUS    RESTARTS   AGE\nweb-7d   1/1     Completed   0          5s",
            "No messages.",
            "The string is missing.",
            "Saved.",
            "100% complete",
            "20% discount on shoes",
            "5 failed, 20 passed in 1.2s",
            "There are 4 unread messages in the inbox.",
        ] {
            assert!(!says(text), "{text}");
        }
        let long = format!("{}\nThe job is still running.", "a line of a log\n".repeat(100));
        assert!(!says(&long), "a sentence in a long text is content");
    }
}
