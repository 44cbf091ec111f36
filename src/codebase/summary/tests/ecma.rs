use super::*;

pub(super) const TYPESCRIPT: &str = r####"/* eslint-disable */
/**
 * @fileoverview The room. More.
 */

import React, { useState, type Ref as R } from 'react'
import * as path from "node:path";
import './side.css'
import type { Options } from './options'
import fs = require('fs')
export { helper as help, default as other } from './helper'
export * from './all'

/** One thing. Or two. */
@Component({
  selector: 'app',
})
export default abstract class Thing<T extends object = {}> extends Base<T> implements One, Two {
  /** How many. */
  @Input() readonly count: number = 0
  private static cache?: Map<string, T>
  #secret = 1
  onClick = async (event: Event): Promise<void> => {
    this.go()
  }
  constructor(private readonly a: string, public b = () => {}) { super() }
  get name(): string { return 'class Fake {}' }
  @Log({ deep: true })
  protected async *walk<K>(
    key: K, // why
    { a, b }: { a: number; b?: string } = { a: 1 },
  ): AsyncGenerator<K> {
    function nested() {}
  }
  abstract open(): void
  static { init() }
  [key: string]: unknown
}

export interface One<T = string> extends Two {
  readonly a: string
  b?(x: T): void;
  (call: number): string
  new (x: T): One
  [key: string]: unknown
}

export type Union =
  | 'a'
  | { kind: 'b'; value: number }
type Shape = {
  width: number
}
export const enum Color { Red, Green = 'green', 'Dark Blue' = 3 }

export function over(a: string): string
export function over(a: number): number
export function over(a: any): any { return a }

export const arrow = async <T,>(x: T): Promise<T> => x
const plain = function* named(a = 1) {}
export const big = {
  a: 1,
}
let one = 1, two = () => {}
export const { left, right: renamed } = pair
declare global { interface Window { app: App } }
declare function ambient(x: number): void
declare module 'virtual:x' { export const value: string }
namespace Outer.Inner { export const deep = 1; const hidden = 2 }
export default function () {}
function größe(größe: number) {}
export { plain, größe as size }
const text = `
export function fake() {}
`
"####;

pub(super) const JAVASCRIPT: &str = r####"#!/usr/bin/env node
'use strict'
// not a doc
const fs = require('fs')
const { join, resolve: absolute } = require("path")
const only = require('many').only
import('./late.js')

/**
 * Adds.
 * @param {number} a
 */
function add(a, b = { c: 1 }) { return a + b }
async function* stream() {}
class Queue extends require('events') {
  static size = 3
  handler = () => {}
  /** Puts it. */
  async put(item) { return new Promise(item) }
  get length() { return 0 }
  static #secret() {}
  [Symbol.iterator]() {}
}
Queue.prototype.take = function (count) { return helper(count) }
exports.make = function make() {}
exports.version = '1.0'
module.exports.twice = (x) => x * 2
var a = 1, b = function () {}
module.exports = { add, Queue, renamed: stream }
"####;

#[test]
fn items() {
    insta::assert_snapshot!(outline(Language::TypeScript, TYPESCRIPT), @r"
    Type Thing
      Field count
      Field cache -
      Field #secret -
      Method onClick
      Method constructor
      Method name
      Method walk -
      Method open
      Field []
    Interface One
      Field a
      Method b
      Method ()
      Method new
      Field []
    Alias Union
    Alias Shape -
      Field width
    Enum Color
      Variant Red
      Variant Green
      Variant Dark Blue
    Function over
    Function over
    Function over
    Function arrow
    Function plain
    Constant big
    Constant one -
    Function two -
    Constant left
    Constant renamed
    Interface Window -
      Field app
    Function ambient
    Module virtual:x
      Constant value
    Module Outer.Inner -
      Constant deep
      Constant hidden -
    Function default
    Function größe
    Constant text -
    ");
    insta::assert_snapshot!(outline(Language::JavaScript, JAVASCRIPT), @r"
    Function add
    Function stream
    Type Queue
      Field size
      Method handler
      Method put
      Method length
      Method #secret -
      Method [Symbol.iterator]
    Method take -
    Function make
    Constant version
    Function twice
    Constant a -
    Function b -
    ");
    assert_eq!(outline(Language::Tsx, TYPESCRIPT), outline(Language::TypeScript, TYPESCRIPT));
}

#[test]
fn signatures() {
    let of = |name| signature(Language::TypeScript, TYPESCRIPT, name);
    insta::assert_snapshot!(of("Thing"), @r"
    @Component({
      selector: 'app',
    })
    export default abstract class Thing<T extends object = {}> extends Base<T> implements One, Two
    ");
    insta::assert_snapshot!(of("walk"), @r"
    @Log({ deep: true })
      protected async *walk<K>(
        key: K, // why
        { a, b }: { a: number; b?: string } = { a: 1 },
      ): AsyncGenerator<K>
    ");
    insta::assert_snapshot!(of("onClick"), @"onClick = async (event: Event): Promise<void> =>");
    insta::assert_snapshot!(of("arrow"), @"export const arrow = async <T,>(x: T): Promise<T> =>");
    insta::assert_snapshot!(of("Union"), @r"
    export type Union =
      | 'a'
      | { kind: 'b'; value: number }
    ");
    insta::assert_snapshot!(of("big"), @"export const big");
    insta::assert_snapshot!(of("renamed"), @"export const { left, right: renamed } = pair");
    insta::assert_snapshot!(of("Outer.Inner"), @"namespace Outer.Inner");
}

#[test]
fn imports_and_docs() {
    insta::assert_snapshot!(imports(Language::TypeScript, TYPESCRIPT), @r"
    6 react: default useState Ref
    7 node:path: *
    8 ./side.css: 
    9 ./options: Options
    10 fs: 
    11 ./helper: helper default
    12 ./all: *
    ");
    insta::assert_snapshot!(docs(Language::TypeScript, TYPESCRIPT), @r"
    The room.
    Thing: One thing.
    count: How many.
    ");
    insta::assert_snapshot!(imports(Language::JavaScript, JAVASCRIPT), @r"
    4 fs: 
    5 path: join resolve
    6 many: only
    ");
    insta::assert_snapshot!(docs(Language::JavaScript, JAVASCRIPT), @r"
    add: Adds.
    put: Puts it.
    ");
}

#[test]
fn a_component() {
    let text = "export function App({ a }: Props) {\n  return <Card title=\"x\">{list.map((x) => <Row key={x} />)}</Card>\n}\nexport const Memo = memo(App)\n";
    insta::assert_snapshot!(outline(Language::Tsx, text), @r"
    Function App
    Constant Memo
    ");
    let (_, uses) = read(Language::Tsx, text);
    assert_eq!(uses, ["Card", "Props", "Row", "map", "memo"]);
}

#[test]
fn names_used() {
    let (_, uses) = read(Language::TypeScript, TYPESCRIPT);
    insta::assert_snapshot!(uses.join(" "), @"App AsyncGenerator Base Component Event Inner Input Log Map Outer Promise Two go init named nested");
}
