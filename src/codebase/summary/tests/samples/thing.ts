/* eslint-disable */
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
