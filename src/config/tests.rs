use secrecy::ExposeSecret;

use super::*;
use crate::types::MicroUsd;

const GOOD: &str = r#"
[app]
id = 7
private_key_file = "app.pem"
[data]
dir = "data"
"#;

const TABLES: &[WorkflowDefaults] = &[
    WorkflowDefaults { looks: true, ..WorkflowDefaults::for_document("lld", "docs/lld/LLD-{issue}.md") },
    WorkflowDefaults { files_issue: true, ..WorkflowDefaults::for_document("issue", "issue.md") },
    WorkflowDefaults { asks_before: true, ..WorkflowDefaults::for_document("spec", "docs/SPEC-{issue}.md") },
    WorkflowDefaults { searches: true, ..WorkflowDefaults::for_document("scout", "docs/{slug}-{issue}.md") },
    WorkflowDefaults { routes: true, ..WorkflowDefaults::for_document("route", "") },
    WorkflowDefaults {
        makes_code: true,
        ..WorkflowDefaults::for_document("implement", "docs/CODE-{issue}.md")
    },
];

struct SettingsDirectory(tempfile::TempDir);

impl SettingsDirectory {
    fn new(toml: &str, env: &str) -> Self {
        let directory = Self(tempfile::tempdir().unwrap());
        std::fs::write(directory.file(), toml).unwrap();
        std::fs::write(directory.0.path().join(".env"), env).unwrap();
        directory
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("countersign.toml")
    }

    fn load(&self) -> Result<Settings, ConfigError> {
        Settings::load_in(&self.file(), TABLES, |_| false)
    }
}

const ENV: &str = "COUNTERSIGN_WEBHOOK_SECRET=hush-hush\n";

fn refusal(toml: &str) -> (Option<usize>, String) {
    let error = SettingsDirectory::new(toml, ENV).load().unwrap_err();
    assert!(error.file.ends_with("countersign.toml"), "{error}");
    (error.line, error.message)
}

#[test]
fn minimal_settings_file_loads_with_default_values() {
    let directory = SettingsDirectory::new(GOOD, ENV);
    let settings = directory.load().unwrap();
    assert_eq!(settings.app.private_key_file, directory.0.path().join("app.pem"));
    assert_eq!(settings.github.api_url.as_str(), "https://api.github.com/");
    assert_eq!(settings.server.listen.to_string(), "127.0.0.1:8008");
    assert_eq!(settings.models.drafter, "claude:opus");
    assert_eq!(settings.models.reviewer, "gemini:pro");
    assert_eq!(settings.models.claude.config_dir, directory.0.path().join("data/claude"));
    let lld = settings.workflow("lld");
    assert_eq!((lld.max_rounds, lld.draft_gate, lld.verdict_gate), (3, false, true));
    assert_eq!(lld.document_path_of(crate::types::IssueNo(42)), "docs/lld/LLD-42.md");
    assert!(settings.allowed_installations.is_empty());
}

#[test]
fn invalid_settings_are_refused_with_line_and_fix() {
    let with = |more: &str| refusal(&format!("{GOOD}{more}"));
    let first = GOOD.lines().count() + 1;
    for (more, line, words) in [
        ("[lld]\nmax_round = 2\n", 1, "unknown field `max_round`"),
        ("[lld]\nmax_rounds = 0\n", 1, "outside 1 to 10"),
        ("[lld]\ndocument_path = \"../x-{issue}.md\"\n", 1, "inside the repository"),
        ("[lld]\ndocument_path = \".GitHub/{issue}.md\"\n", 1, "inside the repository"),
        ("[lld]\ndocument_path = \"x.md\"\n", 1, "must hold {issue}"),
        ("[spec]\ndocument_path = \"docs/lld/LLD-{issue}.md\"\n", 1, "also the path of [lld]"),
        ("[models]\ndrafter = \"gemini:pro\"\n", 1, "only reviews"),
        ("[[providers.gemini.key]]\nname = \"Team\"\n", 1, "GEMINI_API_KEY_TEAM"),
        ("[[providers.gemini.key]]\nname = \"x\"\ntier = \"gold\"\n", 2, "`paid` or `free`"),
        ("[models]\nreviewer = \"pro\"\n", 1, "PROVIDER:MODEL"),
        ("[models]\nreviewer = \"opencode:a/b\"\n", 1, "OpenCode only drafts"),
        ("[github]\napi_url = \"http://ghe.example\"\n", 1, "clear text"),
        ("[github]\napi_url = \"https://u:p@ghe.example\"\n", 1, "user or password"),
        ("[providers.gemini]\nbase_url = \"ftp://x\"\n", 1, "https://HOST"),
        ("[server]\nlisten = \"8008\"\n", 1, "IP:PORT"),
        ("[server]\nprivate_listen = \"0.0.0.0:8009\"\n", 1, "this machine only"),
        ("[server]\nlisten = \"127.0.0.1:8009\"\n", 1, "another port"),
        ("[lld]\ndraft_gate = 3\n", 1, "expected a boolean"),
        ("[lld]\napprovals = 0\n", 1, "outside 1 to 6"),
        ("[issue]\napprovals = 7\n", 1, "outside 1 to 6"),
        ("[lld]\nremind_days = 366\n", 1, "outside 0 to 365"),
        ("[issue]\nverdict_gate = false\n", 1, "a person must approve"),
        ("[issue]\npublish = \"comment\"\n", 1, "publish is not for [issue]"),
        ("[spec]\nverdict_gate = true\n", 1, "write draft_gate"),
        ("[lld]\nmin_stars = 3\n", 1, "min_stars is for [scout] only"),
        ("[scout]\nlimit = 11\n", 1, "outside 1 to 10"),
        ("[scout]\nmode = \"auto\"\n", 1, "mode is for [route] only"),
        ("[route]\nmax_rounds = 2\n", 1, "max_rounds is not for [route]"),
        ("[route]\nmode = \"maybe\"\n", 1, ""),
        ("[route]\nmodel = \"pool:none\"\n", 1, "no pool called"),
        ("[route]\nservice_timeout = \"6m\"\n", 1, "1s to 5m"),
        ("[scout]\ndraft_gate = true\n", 1, "comes after the review"),
        ("[issue]\nlabels = [\"Countersign:auto\"]\n", 1, "start and stop runs"),
        ("[lld\n", 0, ""),
    ] {
        let (at, message) = with(more);
        assert_eq!(at, Some(first + line), "{more}: {message}");
        assert!(message.contains(words), "{more}: {message}");
    }
    assert!(refusal("[data]\ndir = \"d\"\n").1.contains("countersign setup"));
}

#[test]
fn loopback_urls_may_use_plain_http() {
    let toml = format!(
        "{GOOD}[github]\napi_url = \"http://127.0.0.1:99/api/v3\"\n[providers.claude]\nbase_url = \"http://localhost:1\"\n"
    );
    let settings = SettingsDirectory::new(&toml, ENV).load().unwrap();
    assert_eq!(settings.github.api_url.path(), "/api/v3");
}

#[test]
fn github_urls_are_derived_from_the_web_url() {
    for (web, api) in [
        ("https://github.com", "https://api.github.com/"),
        ("https://acme.ghe.com", "https://api.acme.ghe.com/"),
        ("https://ghe.acme.example", "https://ghe.acme.example/api/v3"),
        ("https://acme.example/github/", "https://acme.example/github/api/v3"),
    ] {
        let toml = format!("{GOOD}[github]\nweb_url = \"{web}\"\n");
        let github = SettingsDirectory::new(&toml, ENV).load().unwrap().github;
        assert_eq!((github.api_url.as_str(), &github.git_url), (api, &github.web_url));
    }
}

#[test]
fn sandbox_deny_list_includes_data_directory_keys_and_settings_files() {
    let directory = SettingsDirectory::new(GOOD, &format!("{ENV}GEMINI_API_KEY_FILE=keys/gemini\n"));
    std::fs::create_dir(directory.0.path().join("keys")).unwrap();
    std::fs::write(directory.0.path().join("keys/gemini"), "AIzaSecret").unwrap();
    let settings = directory.load().unwrap();
    for own in ["data", "app.pem", ".env", "countersign.toml", "keys/gemini"] {
        let own = directory.0.path().join(own);
        assert!(
            settings.models.ours.contains(&own),
            "{} is not in {:?}",
            own.display(),
            settings.models.ours
        );
    }
    assert!(!settings.models.claude.allow_unconfined);
}

#[test]
fn error_for_a_missing_settings_file_names_the_setup_command() {
    let error = Settings::load_in(Path::new("/nowhere/countersign.toml"), TABLES, |_| false).unwrap_err();
    assert!(error.to_string().starts_with("/nowhere/countersign.toml: "), "{error}");
    assert!(error.message.contains("countersign setup"));
}

#[test]
fn secrets_are_read_from_env_file_and_hidden_in_debug_output() {
    let directory = SettingsDirectory::new(
        GOOD,
        "COUNTERSIGN_WEBHOOK_SECRET='pa$$word'\nCOUNTERSIGN_WEBHOOK_SECRET_PREVIOUS=older\n\
         GEMINI_API_KEY_FILE=gemini.key\nANTHROPIC_API_KEY=\n",
    );
    std::fs::write(directory.0.path().join("gemini.key"), "AIzaSecret\n").unwrap();
    let settings = directory.load().unwrap();
    let secrets: Vec<_> = settings.webhook_secrets.iter().map(|s| s.expose_secret().to_owned()).collect();
    assert_eq!(secrets, ["pa$$word", "older"]);
    let [key] = settings.models.gemini.keys.as_slice() else { panic!("{settings:?}") };
    assert_eq!(key.secret.expose_secret(), "AIzaSecret");
    assert_eq!((key.name.as_str(), key.project.as_str(), key.tier), ("default", "default", None));
    assert!(settings.models.anthropic.api_key.is_none(), "an empty line is no key");
    let shown = format!("{settings:?}");
    for secret in ["pa$$word", "older", "AIzaSecret"] {
        assert!(!shown.contains(secret), "{shown}");
    }
}

#[test]
fn gemini_keys_keep_the_order_of_the_settings() {
    let toml = format!(
        "{GOOD}[models]\nallow_gemini_drafts = true\ndrafter = \"gemini:pro\"\nreviewer = \"claude:opus\"\n\
         [[providers.gemini.key]]\nname = \"Second\"\nproject = \"shop\"\ntier = \"paid\"\n\
         [[providers.gemini.key]]\nname = \"default\"\ntier = \"free\"\n"
    );
    let env = format!("{ENV}GEMINI_API_KEY=one\nGEMINI_API_KEY_SECOND_FILE=k\nGEMINI_API_KEY_THIRD=three\n");
    let directory = SettingsDirectory::new(&toml, &env);
    std::fs::write(directory.0.path().join("k"), "two\n").unwrap();
    let gemini = directory.load().unwrap().models.gemini;
    let keys: Vec<_> = gemini
        .keys
        .iter()
        .map(|key| (key.name.as_str(), key.project.as_str(), key.tier, key.secret.expose_secret()))
        .collect();
    assert_eq!(
        keys,
        [
            ("second", "shop", Some(GeminiTier::Paid), "two"),
            ("default", "default", Some(GeminiTier::Free), "one"),
            ("third", "third", None, "three"),
        ]
    );
    assert!(gemini.drafts && gemini.depends_on_privacy());
    let may: Vec<_> = gemini.keys.iter().map(|key| gemini.may_read_private(key)).collect();
    assert_eq!(may, [true, false, false], "a key of which nobody said so is not taken for a paid one");
}

#[test]
fn invalid_secrets_are_refused_without_quoting_them() {
    for (env, words) in [
        ("", "no COUNTERSIGN_WEBHOOK_SECRET"),
        ("COUNTERSIGN_WEBHOOK_SECRET=\n", "no COUNTERSIGN_WEBHOOK_SECRET"),
        ("COUNTERSIGN_WEBHOOK_SECRET=xyzzy$HOME\n", "single quotes"),
        ("COUNTERSIGN_WEBHOOK_SECRET=xyzzy plugh\n", "NAME=value"),
        ("COUNTERSIGN_WEBHOOK_SECRET=xyzzy\nCOUNTERSIGN_WEBHOOK_SECRET=plugh\n", "twice"),
        ("COUNTERSIGN_WEBHOOK_SECRET=xyzzy\nCOUNTERSIGN_WEBHOOK_SECRET_FILE=f\n", "both"),
        ("COUNTERSIGN_WEBHOOK_SECRET_FILE=not-there\n", "can't be read"),
        ("GEMINI_API_KEY_A=xyzzy$HOME\n", "single quotes"),
        ("GEMINI_API_KEY_A=xyzzy\nGEMINI_API_KEY_a=plugh\n", "two keys are called a"),
        ("GEMINI_API_KEY=xyzzy\nGEMINI_API_KEY_DEFAULT=plugh\n", "rename GEMINI_API_KEY_DEFAULT"),
        ("GEMINI_API_KEY_=xyzzy\n", "lacks its key's name"),
    ] {
        let error = SettingsDirectory::new(GOOD, env).load().unwrap_err();
        assert!(error.file.ends_with(".env"), "{error}");
        assert!(error.message.contains(words), "{env}: {error}");
        assert!(!error.to_string().contains("xyzzy"), "{error}");
    }
}

#[test]
fn secrets_in_process_environment_are_reported_and_ignored() {
    let directory = SettingsDirectory::new(GOOD, ENV);
    let settings = Settings::load_in(&directory.file(), TABLES, |name| name == "ANTHROPIC_API_KEY").unwrap();
    assert_eq!(settings.ignored_environment, ["ANTHROPIC_API_KEY"]);
    assert!(settings.models.anthropic.api_key.is_none());
}

#[test]
fn repository_settings_may_tighten_but_not_loosen_operator_settings() {
    let settings = SettingsDirectory::new(GOOD, ENV).load().unwrap();
    let tight = RepoSettings::parse("[lld]\nmax_rounds = 2\ndraft_gate = true\n", &settings).unwrap();
    let lld = &tight.workflows["lld"];
    assert_eq!((lld.max_rounds, lld.draft_gate), (2, true));
    assert_eq!(RepoSettings::parse("", &settings).unwrap(), RepoSettings::from_server(&settings));
    let text = "[lld]\napprovals = 2\ncode_owners = true\nremind_days = 0\nexpire_days = 14\n";
    let gates = &RepoSettings::parse(text, &settings).unwrap().workflows["lld"].gates;
    assert_eq!((gates.approvals, gates.code_owners, gates.remind_days, gates.expire_days), (2, true, 0, 14));
    let strict = "approvals = 2\napprover_not_requester = true\ncode_owners = true\n";
    let strict = SettingsDirectory::new(&format!("{GOOD}[lld]\n{strict}"), ENV).load().unwrap();
    let manual = SettingsDirectory::new(&format!("{GOOD}[route]\nmode = \"manual\"\n"), ENV).load().unwrap();
    for (server, mode, holds) in
        [(&settings, "confirm", true), (&manual, "confirm", false), (&manual, "auto", false)]
    {
        let parsed = RepoSettings::parse(&format!("[route]\nmode = \"{mode}\"\n"), server);
        assert_eq!(parsed.is_ok(), holds, "{mode}");
    }
    for looser in [
        "approvals = 1",
        "approver_not_requester = false",
        "code_owners = false",
        "expire_days = 0",
        "expire_days = 31",
    ] {
        let error = RepoSettings::parse(&format!("[lld]\n{looser}\n"), &strict).unwrap_err();
        assert_eq!(error.line, Some(2), "{looser}: {error}");
    }
    let confirm =
        SettingsDirectory::new(&format!("{GOOD}[route]\nmode = \"confirm\"\n"), ENV).load().unwrap();
    let mode = |mode: &str| RepoSettings::parse(&format!("[route]\nmode = \"{mode}\"\n"), &confirm);
    assert_eq!(mode("manual").unwrap().workflows["route"].routing.as_ref().unwrap().mode, RouteMode::Manual);
    assert_eq!(mode("auto").unwrap_err().line, Some(2));
    for (text, line) in [
        ("[lld]\nmax_rounds = 4\n", 2),
        ("[lld]\nmax_rounds = 0\n", 2),
        ("[lld]\n\nverdict_gate = false\n", 3),
        ("[lld]\ndocument_path = \"x\"\n", 2),
        ("[lld]\npublish = \"branch\"\n", 2),
        ("[models]\n", 1),
        ("[lld]\nmax_rounds = \"two\"\n", 2),
        ("[scout]\nsend_code = true\n", 2),
        ("[scout]\nlimit = 4\n", 2),
        ("[scout]\nmin_stars = 99\n", 2),
        ("[lld]\ntools = true\n", 2),
        ("[lld]\nreview_tools = true\n", 2),
        ("[lld]\ntool_commands = true\n", 2),
        ("[lld]\ntool_turns = 6\n", 2),
        ("[spec]\ntools = false\n", 2),
        ("[spec]\ncoverage = 99\n", 2),
        ("[spec]\nfrom = \"lld\"\n", 2),
        ("[implement]\nfrom = \"issue\"\n", 2),
        ("[implement]\ncoverage = 94\n", 2),
        ("[implement]\ncoverage = 101\n", 2),
        ("[route]\nmodel = \"claude:opus\"\n", 2),
        ("[route]\nmode = \"manual\"\nprogram_timeout = \"5m\"\n", 3),
    ] {
        let error = RepoSettings::parse(text, &settings).unwrap_err();
        assert_eq!(error.line, Some(line), "{text}: {error}");
        assert_eq!(error.file, ".github/countersign.toml");
    }
}

#[test]
fn local_models_are_read_from_env_file() {
    let load = |env: &str, toml: &str| {
        SettingsDirectory::new(&format!("{GOOD}{toml}"), &format!("{ENV}{env}")).load()
    };
    let settings = load("LOCAL_LLM_MODEL_NARRATOR=qwen3:0.6b\nLOCAL_LLM_TEMPERATURE=0.2\n", "").unwrap();
    let models = &settings.models;
    assert_eq!(models.ollama.base_url.as_str(), "http://localhost:11434/");
    let rows: Vec<_> =
        models.table.iter().map(|row| (row.id.as_str(), row.family.0.as_ref(), row.max_output)).collect();
    assert_eq!(rows, [("llama3.1:8b", "local", 800), ("qwen3:0.6b", "local", 800)]);
    assert_eq!(models.names.presets["local"], "ollama:llama3.1:8b");
    assert_eq!(settings.routing().unwrap().model, "preset:local-narrator");
    assert_eq!((models.drafter.as_str(), models.reviewer.as_str()), ("claude:opus", "gemini:pro"));

    let roles = |env: &str, toml: &str| load(env, toml).unwrap().models.roles.into_iter().collect::<Vec<_>>();
    let (mine, local) =
        (|role: &str, model: &str| (role.to_owned(), model.to_owned()), "preset:local-tester");
    assert_eq!(roles("LOCAL_LLM_MODEL_TESTER=devstral\n", ""), [mine("tester", local)]);
    let toml_text =
        "[roles]\narchitect = \"high\"\ntester = \"claude:sonnet\"\nmaintainer = \"role:junior\"\n";
    let given = [mine("maintainer", "role:junior"), mine("tester", "claude:sonnet")];
    assert_eq!(roles("LOCAL_LLM_MODEL_TESTER=devstral\n", toml_text), given);
    assert_eq!(roles("", "[roles]\narchitect = \"claude:haiku\"\n"), [mine("architect", "claude:haiku")]);
    for (line, words) in [
        ("architect = \"best\"", "architect = \"best\" is not a model"),
        ("tester = \"role:none\"", "there is no role called"),
        ("tester = \"gemini:pro\"", "Gemini only reviews"),
        ("engineer = \"claude:opus\"", "unknown variant"),
        ("catcher = \"claude:opus\"", "unknown field `catcher`"),
    ] {
        let error = load("", &format!("[roles]\n{line}\n")).unwrap_err().to_string();
        assert!(error.contains(words), "{line}: {error}");
    }

    let openai = "LOCAL_LLM_API=openai-compatible\nLOCAL_LLM_URL=http://127.0.0.1:8080\nLOCAL_LLM_API_KEY=sk-local\n\
                  LOCAL_LLM_MODEL=team/mistral-small\nLOCAL_LLM_MODEL_ARCHITECT=devstral\n";
    let models = load(openai, "").unwrap().models;
    assert_eq!(
        (models.openai.base_url.as_str(), models.drafter.as_str()),
        ("http://127.0.0.1:8080/v1", "preset:local-architect")
    );
    assert_eq!(models.openai.api_key.unwrap().expose_secret(), "sk-local");
    let toml_text =
        "[models]\ndrafter = \"claude:sonnet\"\n[providers.openai]\nbase_url = \"http://127.0.0.1:1/v1\"\n";
    let models = load(openai, toml_text).unwrap().models;
    assert_eq!(
        (models.openai.base_url.as_str(), models.drafter.as_str()),
        ("http://127.0.0.1:1/v1", "claude:sonnet")
    );

    assert!(models.openai.api_key.is_none(), "the key is for the other address");
    let paid = "LOCAL_LLM_URL=https://models.example\nLOCAL_LLM_ALLOWED_HOSTS=models.example\n";
    let row = |settings: Settings| settings.models.table[0].prices.first().copied();
    assert!(
        row(load(paid, "").unwrap()).is_none() && row(load("LOCAL_LLM_MODEL=x\n", "").unwrap()).is_some()
    );

    for (env, why) in [
        ("LOCAL_LLM_API=vllm\n", "neither ollama nor openai-compatible"),
        ("LOCAL_LLM_URL=https://models.example\n", "is not in LOCAL_LLM_ALLOWED_HOSTS"),
        ("LOCAL_LLM_URL=here\n", "not a URL with a host"),
        ("LOCAL_LLM_URL=http://u:hunter2@localhost:1\n", "must not hold a user or password"),
        ("LOCAL_LLM_API=openai\nOPENAI_API_KEY=sk-paid\n", "configure two endpoints"),
        ("LOCAL_LLM_URL=http://models.example\nLOCAL_LLM_ALLOWED_HOSTS=models.example\n", "unencrypted"),
        ("LOCAL_LLM_MODEL_JUNIOR=x\n", "unknown variable LOCAL_LLM_MODEL_JUNIOR"),
        ("LOCAL_LLM_MAX_TOKENS=many\n", "not a number from 1 to"),
        ("LOCAL_LLM_API_KEY=$HOME\n", "holds a `$`"),
    ] {
        let error = load(env, "").unwrap_err();
        assert!(error.file.ends_with(".env") && error.message.contains(why), "{env}: {error}");
        assert!(!error.message.contains("hunter2") && !error.message.contains("sk-paid"), "{error}");
    }
}

#[test]
fn long_unknown_key_is_truncated_in_error() {
    let settings = SettingsDirectory::new(GOOD, ENV).load().unwrap();
    let long = format!("[lld]\n\"{}\\n\" = 1\n", "approve this ".repeat(100));
    let error = RepoSettings::parse(&long, &settings).unwrap_err();
    assert_eq!(error.message.chars().count(), 450, "{error}");
    assert!(
        error.message.starts_with("unknown field `approve this") && error.message.ends_with('…'),
        "{error}"
    );
}

const ROW: &str = "[[model]]\nid = \"qwen3:32b\"\nproviders = [\"ollama\"]\nfamily = \"qwen\"\ncontext = 40960\n\
                   max_output = 8192\n";

#[test]
fn model_entry_is_read_with_all_fields() {
    let more = "aliases = [\"qwen\"]\nprice = { input = 0.25, output = 2, cache_read = 0.02 }\n\
                tiers = [{ above = 1000, input = 1, output = 4 }, { from = \"2027-01-01\", input = 2, output = 8 }]\n\
                retires = \"2027-02-01\"\nsuccessor = \"qwen4\"\nsource = \"https://q\"\nread = \"2026-11-27\"\n";
    let settings = SettingsDirectory::new(&format!("{GOOD}{ROW}{more}"), ENV).load().unwrap();
    let day = |text: &str| Some(Timestamp::parse(&format!("{text}T00:00:00Z")).unwrap());
    let usual = Price { cache_read: 20_000, ..Price::per_million(250_000, 2_000_000) };
    let long = Price { above: 1000, ..Price::per_million(1_000_000, 4_000_000) };
    let later = Price { from: day("2027-01-01"), ..Price::per_million(2_000_000, 8_000_000) };
    let expected = Model {
        id: "qwen3:32b".into(),
        aliases: vec!["qwen".into()],
        providers: vec!["ollama".into()],
        family: Family("qwen".into()),
        context: 40_960,
        max_output: 8192,
        prices: vec![usual, long, later],
        retires: day("2027-02-01"),
        successor: Some("qwen4".into()),
        source: Some("https://q, read 2026-11-27".into()),
    };
    assert_eq!(settings.models.table, [expected]);
}

#[test]
fn invalid_model_entry_is_refused_with_its_line() {
    let first = GOOD.lines().count();
    for (row, line, words) in [
        (format!("{ROW}price = {{ input = -1, output = 2 }}\n"), 7, "-1 is not a price"),
        (format!("{ROW}price = {{ input = 1 }}\n"), 7, "missing field `output`"),
        (format!("{ROW}contxt = 1\n"), 7, "unknown field `contxt`"),
        (ROW.replace("\"qwen\"", "\"q w\""), 4, "family = \"q w\" is not a name"),
        (ROW.replace("family = \"qwen\"\n", ""), 1, "missing field `family`"),
        (format!("{ROW}{ROW}"), 8, "is in two [[model]] tables"),
        (
            format!("{ROW}{}aliases = [\"qwen3:32b\"]\n", ROW.replace("3:32b", "4")),
            13,
            "\"qwen3:32b\" is also a name of \"qwen3:32b\" above",
        ),
        (
            ROW.replace("\"ollama\"", "\"olama\""),
            3,
            "providers: unknown provider \"olama\"; known are claude, ",
        ),
        (ROW.replace("8192", "40961"), 6, "max_output = 40961 is more than context = 40960"),
        (format!("{ROW}tiers = [{{ input = 1, output = 2 }}]\n"), 7, "tiers need a base price; add it"),
        (format!("{ROW}retires = \"soon\"\n"), 7, "retires = \"soon\" is not a date"),
        ("[models]\nreviewer = \"gemni:pro\"\n".to_owned(), 2, "reviewer: unknown provider \"gemni\""),
        ("[models.successors]\n\"gemni:pro\" = [\"x\"]\n".to_owned(), 2, "unknown provider \"gemni\""),
    ] {
        let (at, message) = refusal(&format!("{GOOD}{row}"));
        assert!(message.contains(words), "{row}: {message}");
        assert_eq!(at, Some(first + line), "{row}: {message}");
    }
}

#[test]
fn unpriced_model_causes_a_warning_if_any_budget_cap_is_set() {
    let warnings =
        |text: &str| SettingsDirectory::new(&format!("{GOOD}{ROW}{text}"), ENV).load().unwrap().warnings;
    let [warning] = &warnings("")[..] else { panic!("one row, one warning") };
    let line = GOOD.lines().count() + 2;
    assert!(warning.contains(&format!("countersign.toml:{line}: \"qwen3:32b\" has no price")), "{warning}");
    assert!(warnings("price = { input = 0, output = 0 }\n").is_empty());
    let uncapped = "[budget]\ncall = \"none\"\nstage = \"none\"\nrun = \"none\"\nrepository_day = \"none\"\n\
                    installation_month = \"none\"\n";
    assert!(warnings(uncapped).is_empty());
}

#[test]
fn cassettes_setting_requires_a_directory_and_a_mode() {
    let with = |value: &str| format!("{GOOD}[models]\ncassettes = {value}\n");
    let directory = SettingsDirectory::new(&with("{ dir = \"kept\", mode = \"replay\" }"), ENV);
    let expected = CassetteSettings { dir: directory.0.path().join("kept"), mode: CassetteMode::Replay };
    assert_eq!(directory.load().unwrap().models.cassettes, Some(expected));
    assert!(refusal(&with("{ dir = \"kept\", mode = \"play\" }")).1.contains("unknown variant `play`"));
    assert!(refusal(&with("{ dir = \"\", mode = \"record\" }")).1.contains("dir is empty"));
}

#[test]
fn unset_pool_settings_use_defaults_and_most_urgent_label_or_path_rule_wins() {
    let directory = SettingsDirectory::new(
        &format!(
            "{GOOD}[workers.low]\nsize = 3\n[workers.labels]\nUrgent = \"high\"\nlater = \"low\"\n\
             [workers.paths]\n\"src/pay\" = \"high\"\n\"docs/\" = \"background\"\n\".cargo/\" = \"low\"\n"
        ),
        ENV,
    );
    let workers = directory.load().unwrap().models.workers;
    assert_eq!(workers.low, Bulkhead { size: 3, nice: 10, memory_mb: 512 });
    let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let of = |labels: &[&str]| workers.assign_pool(&owned(labels), &[]).pool;
    use crate::types::WorkerPool::{Background, High, Low, Medium};
    for (labels, paths, pool, row) in [
        ("x", &["docs/a.md"][..], Background, Some("docs/")),
        ("x", &["docs/a.md", ".cargo/config.toml"], Low, Some(".cargo/")),
        ("x", &["README.md", "docs/a.md"], Medium, None),
        ("later", &["docs/a.md"], Low, Some("later")),
        ("later", &["README.md", "docs/a.md"], Low, Some("later")),
        ("later", &["README.md", "src/pay/x.rs"], High, Some("src/pay")),
        ("x", &["src/payment.rs"], Medium, None),
    ] {
        let assigned = workers.assign_pool(&owned(&[labels]), &owned(paths));
        assert_eq!((assigned.pool, assigned.row.as_deref()), (pool, row), "{labels} {paths:?}");
    }
    for path in ["/src", "./src", "src/../x", ""] {
        let (_, message) = refusal(&format!("{GOOD}[workers.paths]\n{path:?} = \"high\"\n"));
        assert!(message.contains(&format!("{path:?} is not a path")), "{message}");
    }
    assert_eq!([of(&[]), of(&["bug", "Later"]), of(&["later", "urgent"])], [Medium, Low, High]);

    let first = GOOD.lines().count() + 1;
    for (line, words) in [
        ("size = 0", "size = 0 is outside 1 to 64"),
        ("nice = -1", "nice = -1 is outside 0 to 19"),
        ("memory_mb = 1", "memory_mb = 1 is outside 64"),
    ] {
        let (at, message) = refusal(&format!("{GOOD}[workers.high]\n{line}\n"));
        assert_eq!(at, Some(first + 1));
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn budget_caps_are_in_dollars_and_a_repository_may_only_lower_them() {
    let with = |budget: &str| SettingsDirectory::new(&format!("{GOOD}[budget]\n{budget}\n"), ENV).load();
    let budget = with("run = \"$12.50\"\ncall = \"none\"").unwrap().budget;
    assert_eq!((budget.run, budget.call), (Some(MicroUsd(12_500_000)), None));
    assert_eq!(budget.run_at_most, BudgetSettings::default().run_at_most);
    assert_eq!(with("run = \"$40\"").unwrap().budget.run_at_most, Some(MicroUsd(40_000_000)));
    assert_eq!(with("run = \"none\"").unwrap().budget.run_at_most, None);
    let lines = GOOD.lines().count();
    for (budget, words) in [
        ("run = \"a lot\"", "run = \"a lot\" is not an amount"),
        ("stage = \"-1\"", "is not an amount"),
        ("run_at_most = \"$1\"", "less than run"),
    ] {
        let error = with(budget).unwrap_err();
        assert_eq!(error.line, Some(lines + 2), "{error}");
        assert!(error.message.contains(words), "{error}");
    }
    let server = with("repository_day = \"none\"").unwrap();
    let own = |text: &str| RepoSettings::parse(&format!("[budget]\n{text}\n"), &server);
    let tight = own("run = \"$1\"\nrepository_day = \"$3\"").unwrap().budget;
    assert_eq!((tight.run, tight.repository_day), (Some(MicroUsd(1_000_000)), Some(MicroUsd(3_000_000))));
    assert_eq!(tight.stage, server.budget.stage);
    for loose in ["run = \"$11\"", "run = \"none\"", "installation_month = \"$1\""] {
        assert_eq!(own(loose).unwrap_err().line, Some(2), "{loose}");
    }
}

#[test]
fn settings_fingerprint_ignores_paths_addresses_and_pool_sizes() {
    let of = |lines: &str, env: &str| {
        let directory = SettingsDirectory::new(
            &GOOD.replace("[data]\n", &format!("{lines}\n[data]\n")),
            &format!("{ENV}{env}"),
        );
        directory.load().unwrap().fingerprints()
    };
    let usual = of("", "");
    let own = "[server]\nlisten = \"127.0.0.1:9001\"\n[workers.high]\nsize = 7\n\
               [providers.ollama]\nbase_url = \"http://127.0.0.1:9002\"\n[providers.claude]\nconfig_dir = \"elsewhere\"\n";
    assert_eq!(of(own, "GEMINI_API_KEY=a-key\nANTHROPIC_API_KEY=another\n"), usual);
    let models = "what is said of models";
    for (lines, table) in [
        ("[models]\nreviewer = \"gemini:flash\"", models),
        ("[models]\nattest_opencode = true", models),
        ("[models.successors]\n\"gemini:pro\" = [\"gemini-3.8-flash\"]", models),
        ("[models]\nallow_gemini_drafts = true", models),
        ("[providers.claude]\nallow_unconfined = true", models),
        ("[workers.labels]\nurgent = \"high\"", models),
        ("[sandbox]\nlevel = \"basic\"", "[sandbox] or [fetch]"),
        ("[fetch]\nhosts = [\"docs.rs\"]", "[sandbox] or [fetch]"),
        ("[budget]\ninstallation_month = \"$100\"", "[budget]"),
    ] {
        let other = of(lines, "");
        let differ: Vec<_> = usual.keys().filter(|table| usual[*table] != other[*table]).collect();
        assert_eq!(differ, [&table], "{lines}");
    }
}
