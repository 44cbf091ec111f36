//! What others may have, or what is yet to come, is no error.

use super::*;

fn errors(files: &[(&str, &str)], text: &str) -> Vec<String> {
    weighed(files, text).0
}

#[test]
fn a_type_of_others_is_not_taken_for_one_of_the_same_name() {
    let files: &[(&str, &str)] = &[
        ("src/error.rs", "pub enum Error { Io }\npub struct Command { name: u8 }\npub struct Till;\n"),
        (
            "src/run.rs",
            "use std::process::Command;\nuse crate::error::Till;\nfn run() { Command::new(\"\"); }\n",
        ),
        ("ml/model.py", "class Model:\n    def fit(self):\n        pass\n"),
        ("app/user.py", "from django.db import models\n\nclass User(models.Model):\n    pass\n"),
        ("app/row.py", "from peewee import Model as Base\n\nclass Row(Base):\n    pass\n"),
        ("app/net.py", "from ml.model import Model\n\nclass Net(Model):\n    pass\n"),
        ("web/base.ts", "export class Component { draw() {} }\n"),
        ("web/view.ts", "import { Component } from 'preact'\nexport class View extends Component {}\n"),
        ("src/main/java/org/shop/Activity.java", "package org.shop;\npublic class Activity { int size; }\n"),
        (
            "src/main/java/org/shop/Main.java",
            "package org.shop;\nimport android.app.Activity;\npublic class Main extends Activity { int x; }\n",
        ),
        ("api/job.go", "package api\n\ntype config struct {\n\tsize int\n}\n"),
    ];
    for others in [
        "std::io::Error::last_os_error",
        "Command::current_dir",
        "User.refresh_from_db",
        "Row.refresh_from_db",
        "View.forceUpdate",
        "Main.findViewById",
        "config.LoadDefaultConfig",
    ] {
        assert_eq!(errors(files, &format!("It calls `{others}()`.")), [""; 0], "{others}");
    }
    assert_eq!(errors(files, "It calls `std::io::Error::other_io()` in `src/error.rs`."), [""; 0]);
    for ours in ["Till::open_drawer", "crate::error::Till::open_drawer", "Net.refresh_all", "config.loadAll"]
    {
        assert_eq!(errors(files, &format!("It calls `{ours}()`.")), [ours], "{ours}");
    }
}

#[test]
fn what_is_lent_without_being_spelled_is_not_denied() {
    let files: &[(&str, &str)] = &[
        ("src/job.rs", "pub struct Job;\n"),
        ("src/shout.rs", "pub trait Shout { fn shout_out(&self) {} }\nimpl<T> Shout for T {}\n"),
        (
            "api/api.go",
            "package api\n\ntype Pod struct {\n\tmetav1.ObjectMeta `json:\"metadata\"`\n\tsize int\n}\n\ntype Conn net.Conn\n\n\
             type Plain struct {\n\tsize int `json:\"size\"`\n}\n",
        ),
        ("Cart.cs", "public class Cart { public int Size; }\n"),
        ("Scale.cs", "public static class Scale { public static int Weigh(this Cart cart) { return 0; } }\n"),
        ("web/bag.js", "class Bag { add() {} }\n"),
        ("Till.java", "public class Till { int size; }\n"),
    ];
    for lent in [
        "The existing `Job::shout_out()` runs.",
        "The existing `Job::shout_out()` in `src/job.rs` runs.",
        "It calls `Pod.GetNamespace()` and `Conn.SetDeadline()`.",
        "The existing `Cart.Weigh()` runs, then `Cart.MemberwiseClone()`.",
        "It calls `Bag.hasOwnProperty()` and `Till.notifyAll()`.",
    ] {
        assert_eq!(errors(files, lent), [""; 0], "{lent}");
    }
    assert_eq!(errors(files, "It calls `Plain.GetNamespace()`."), ["Plain.GetNamespace"]);
}

#[test]
fn what_is_read_or_what_something_is_turned_into_may_be_yet_to_come() {
    let files: &[(&str, &str)] = &[
        ("src/user.ts", "export function loadUser() {}\nexport const account_names = 1\n"),
        (
            "src/config.rs",
            "pub struct Server { pub timeouts: u8, pending_jobs: u8 }\nconst DATABASE_URL: u8 = 1;\n",
        ),
    ];
    for fine in [
        "The handler reads `account_name` from the body.",
        "The handler reads `account_name` from `src/user.ts`.",
        "It reads `DATABASE_URLS` and `server.timeout`.",
        "It keeps the job in `self.pending_job`.",
        "Replace `loadUser()` with `loadUsers()` in `src/user.ts`.",
        "Convert `loadUser()` into `loadUsers()` in `src/user.ts`.",
        "`loadUser()` is changed to `loadUsers()` in `src/user.ts`.",
        "It could live in `src/cache.ts`.",
    ] {
        assert_eq!(errors(files, fine), [""; 0], "{fine}");
    }
    for (text, about) in [
        ("It calls `self.pending_job`.", "self.pending_job"),
        ("Replace the loop by calling `loadUsers()`.", "loadUsers"),
        ("A change: `loadUsers()` in `src/user.ts` runs.", "src/user.ts loadUsers"),
    ] {
        assert_eq!(errors(files, text), [about], "{text}");
    }
}

#[test]
fn types_that_are_all_bases_of_each_other_are_looked_at_once() {
    let bases: Vec<String> = (0..60).map(|at| format!("Base{at}")).collect();
    let bases = bases.join(", ");
    let classes: String =
        (0..60).map(|at| format!("class Base{at}({bases}):\n    def go(self):\n        pass\n")).collect();
    let text: String = (0..60).map(|at| format!("It calls `Base{at}.going()`. ")).collect();
    // Whoever looked at each anew on every way to it would not come back.
    assert!(errors(&[("app/bases.py", &classes)], &text).len() <= 60);
}

#[test]
fn what_is_derived_on_a_condition_may_be_there() {
    let file = |attribute: &str| format!("{attribute}\npub struct Cli;\n");
    let told =
        |attribute: &str| errors(&[("src/cli.rs", &file(attribute))], "It calls `Cli::try_parse_from()`.");
    for attribute in [
        "#[cfg_attr(feature = \"cli\", derive(clap::Parser))]",
        "#[cfg_attr(all(test, unix), automock)]",
        "#[cfg_attr(test, derive(Debug), cfg_attr(unix, derive(Parser)))]",
    ] {
        assert_eq!(told(attribute), [""; 0], "{attribute}");
    }
    for attribute in ["#[cfg_attr(any(test, unix), derive(Debug, Clone), serde(default))]", "#[cfg_attr()]"] {
        assert_eq!(told(attribute), ["Cli::try_parse_from"], "{attribute}");
    }
}

#[test]
fn what_a_file_hands_on_is_in_it() {
    let files: &[(&str, &str)] = &[
        ("src/lib.rs", "mod lex;\npub use lex::TokenStream;\nuse lex::Token;\npub fn run(token: Token) {}\n"),
        ("src/lex.rs", "pub struct TokenStream;\npub struct Token;\n"),
        ("shop/__init__.py", "from .cart import ShopCart\n"),
        ("shop/cart.py", "class ShopCart:\n    pass\n"),
        (
            "web/index.ts",
            "export { NavBar } from './nav'\nimport { SideBar } from './nav'\nexport { SideBar }\n",
        ),
        ("web/nav.ts", "export class NavBar {}\nexport class SideBar {}\n"),
    ];
    for fine in [
        "`TokenStream` is in `src/lib.rs`.",
        "`ShopCart` is in `shop/__init__.py`.",
        "`NavBar` is in `web/index.ts`, `SideBar` is in `web/index.ts`.",
    ] {
        assert_eq!(weighed(files, fine), (vec![], vec![]), "{fine}");
    }
    assert_eq!(errors(files, "`lex::Token` is in `src/lib.rs`."), [""; 0]);
    assert_eq!(errors(files, "`Token()` is in `src/lib.rs`."), ["src/lib.rs Token"]);
}

#[test]
fn a_type_that_the_design_has_from_others_is_not_ours_of_the_same_name() {
    let files: &[(&str, &str)] = &[
        ("src/cli.rs", "pub enum Command { Run }\npub struct Till;\n"),
        ("web/db.ts", "export class Client { send() {} }\nexport class Router { add() {} }\n"),
        ("web/app.ts", "import Router from 'koa-router'\nexport class App extends Router {}\n"),
        ("web/conn.ts", "export class Conn { send() {} }\nexport class Node { sendAll() {} }\n"),
        ("web/pool.ts", "import { Conn } from '@pg/core'\nexport class Pool extends Conn {}\n"),
        ("shop/bag.py", "class Redis:\n    def add(self):\n        pass\n"),
        ("store/store.go", "package store\n\ntype Store struct {\n\tsize int\n}\n"),
        ("go.mod", "module example.org/shop\n"),
        ("context.go", "package shop\n\ntype Context struct {\n\tsize int\n}\n"),
        ("requirements.txt", "celery\n"),
        ("shop/celery.py", "class Task:\n    def add(self):\n        pass\n"),
        ("src/main/java/org/shop/Order.java", "package org.shop;\npublic class Order { int size; }\n"),
    ];
    for (block, fine) in [
        ("```rust\nuse clap::{Arg, Command};\n```", "Command::arg_required_else_help"),
        ("```rust\nuse clap::Command;\nfn run() { ... }\n```", "Command::arg_required_else_help"),
        ("```rust\nlet command = clap::Command::new(\"x\");\n```", "Command::arg_required_else_help"),
        ("A `clap::Command` is built.", "Command::arg_required_else_help"),
        ("```ts\nimport { Client } from 'pg'\n```", "Client.queryAll"),
        ("```ts\nimport { Client } from '@pg/core'\n```", "Client.queryAll"),
        ("```js\nconst { Client } = require('pg')\n```", "Client.queryAll"),
        ("```js\nimport pg from 'pg'\nconst client = new pg.Client()\n```", "Client.queryAll"),
        ("```ts\nimport Router from 'koa-router'\n```", "Router.allowedMethods"),
        ("```python\nfrom redis import Redis\n```", "Redis.hset_many"),
        ("```go\nimport \"example.org/store\"\n\nvar s badger.Store\n```", "Store.NewTransaction"),
        ("```java\nimport com.paypal.Order;\n```", "Order.capturePayment"),
        ("", "context.Context.Deadline"),
        ("", "celery.Task.update_state"),
        ("", "App.allowedMethods"),
        ("", "Node.compareDocumentPosition"),
        ("", "Pool.queryAll"),
    ] {
        let text = format!("It calls `{fine}()`.\n\n{block}");
        assert_eq!(weighed(files, &text), (vec![], vec![]), "{text}");
    }
    for (block, gone) in [
        ("```rust\nuse crate::cli::Till;\n```", "Till::open_drawer"),
        ("```ts\nimport { Client } from './db'\n```", "Client.queryAll"),
        ("```python\nfrom shop.bag import Redis\n```", "Redis.hset_many"),
        ("```go\nvar s store.Store\n```", "Store.NewTransaction"),
        ("```java\nimport org.shop.Order;\n```", "Order.capturePayment"),
        ("```go\nvar context shop.Context\n```", "Context.Deadline"),
    ] {
        assert_eq!(errors(files, &format!("It calls `{gone}()`.\n\n{block}")), [gone], "{block}");
    }
}

#[test]
fn who_has_a_name_may_be_told_by_a_word() {
    let files: &[(&str, &str)] =
        &[("shop/cli.py", "class Command:\n    def run_command(self):\n        pass\n")];
    for fine in [
        "It uses click's `Command.get_help()`.",
        "It uses Flask’s `Command.get_help()`, and uses Rails' `Command.get_text()`.",
        "It calls `Command.get_help()` of click.",
    ] {
        assert_eq!(errors(files, fine), [""; 0], "{fine}");
    }
    for (text, about) in [
        ("It uses `Command.get_help()`.", "Command.get_help"),
        ("It calls the shop's `Command.run_commands()`.", "Command.run_commands"),
    ] {
        assert_eq!(errors(files, text), [about], "{text}");
    }
}

#[test]
fn what_a_file_will_have_is_in_it_as_well() {
    let files: &[(&str, &str)] = &[
        ("src/config.rs", "pub fn load_file() {}\npub struct Job;\nimpl Job { pub fn run(&self) {} }\n"),
        ("src/row.rs", "pub fn take_row() {}\n"),
    ];
    for fine in [
        "`MOST_ROWS` is defined in `src/config.rs`.",
        "If the row is already done, `Job::skip_row()` goes on.",
        "There is no existing `Job::skip_row()`. A row has no current `Job::skip_line()`.",
    ] {
        assert_eq!(errors(files, fine), [""; 0], "{fine}");
    }
    for (text, about) in [
        ("`MOST_ROWS` is defined in `src/row.rs`.", "src/row.rs MOST_ROWS"),
        ("`load_files()` is defined in `src/config.rs`.", "src/config.rs load_files"),
        ("`take_row()` is defined in `src/config.rs`.", "src/config.rs take_row"),
        ("If it is done, the existing `Job::skip_row()` goes on.", "Job::skip_row"),
    ] {
        assert_eq!(errors(files, text), [about], "{text}");
    }
}
