#!/usr/bin/env node
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
