//! Tests in which the real Prometheus scrapes `/metrics` of a real `serve`.

use std::{
    env, fs,
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    browser::Browser,
    process::{PATIENCE, Running, free_address},
    server::Site,
};

/// Returns the path of Prometheus if it runs on this machine. If `COUNTERSIGN_TEST_PROMETHEUS` names the path, a
/// Prometheus that does not run fails the test.
fn prometheus() -> Option<String> {
    let named = env::var("COUNTERSIGN_TEST_PROMETHEUS").ok();
    let program = named.clone().unwrap_or_else(|| "prometheus".to_owned());
    let runs = Command::new(&program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    assert!(named.is_none() || runs.is_ok(), "{program} does not run");
    runs.ok().map(|_| program)
}

#[test]
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn prometheus_scrapes_the_server() {
    let Some(program) = prometheus() else { return println!("skipped: Prometheus, which is not installed") };
    let mut site = Site::new();
    let _serving = site.serve();
    site.label("countersign:lld");
    let (home, address) = (tempfile::tempdir().unwrap(), free_address());
    let config = home.path().join("prometheus.yml");
    let token = site.directory().join("data/token");
    let text = format!(
        "scrape_configs:\n- job_name: countersign\n  scrape_interval: 1s\n  authorization:\n    credentials_file: {}\n  \
         static_configs:\n  - targets: [\"{}\"]\n",
        token.display(),
        site.page(),
    );
    fs::write(&config, text).unwrap();
    let mut watching = Running::start(
        Command::new(program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", home.path().join("series").display()))
            .arg(format!("--web.listen-address={address}")),
    );
    watching.wait_for_line("Server is ready to receive web requests");
    let ask = |what: &str| -> Value {
        let url = format!("http://{address}/api/v1/{what}").parse().unwrap();
        serde_json::from_str(&Browser::default().open(&url).body).unwrap()
    };
    let query = "query?query=countersign_runs{workflow=%22lld%22,status=%22asking%22}";
    let until = Instant::now() + PATIENCE;
    // One late scrape marks the target unhealthy and its series stale until the next.
    loop {
        let found = ask(query)["data"]["result"][0].clone();
        let target = ask("targets")["data"]["activeTargets"][0].clone();
        let calls = ask("query?query=sum(countersign_model_calls_total)")["data"]["result"][0].clone();
        let made = calls["value"][1].as_str().is_some_and(|calls| calls.parse::<f64>().unwrap() > 0.0);
        let well = target["health"] == "up" && target["lastError"] == "";
        if found["value"][1] == "1" && found["metric"]["step"] == "N4" && well && made {
            break;
        }
        assert!(Instant::now() < until, "{found}, {target}, {calls}");
        sleep(Duration::from_millis(200));
    }
}

/// Input for `promtool test rules` that tests the alert rule. All calls of one model fail; calls of another model fail
/// sometimes.
const FAILING: &str = r#"
rule_files: [rules.yml]
tests:
- interval: 1m
  input_series:
  - series: countersign_model_calls_total{provider="gemini",model="pro",outcome="quota"}
    values: 0+1x30
  - series: countersign_model_calls_total{provider="claude",model="opus",outcome="capacity"}
    values: 0+1x30
  - series: countersign_model_calls_total{provider="claude",model="opus",outcome="answered"}
    values: 0+2x30
  alert_rule_test:
  - eval_time: 20m
    alertname: ModelsFail
    exp_alerts: [{ exp_labels: { provider: gemini } }]
"#;

#[test]
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
fn alert_from_the_docs_fires_when_every_call_fails() {
    let Some(program) = prometheus() else { return println!("skipped: Prometheus, which is not installed") };
    let (_, rules) = include_str!("../../../docs/metrics.md").split_once("```yaml\ngroups:").unwrap();
    let (rules, _) = rules.split_once("```").unwrap();
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("rules.yml"), format!("groups:{rules}")).unwrap();
    fs::write(home.path().join("test.yml"), FAILING).unwrap();
    let mut tool = Command::new(program.replace("prometheus", "promtool"));
    let ended = tool.args(["test", "rules", "test.yml"]).current_dir(home.path()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()));
}
