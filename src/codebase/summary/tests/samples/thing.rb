#!/usr/bin/env ruby
# frozen_string_literal: true

# What this file is.

require "json"
require_relative 'lib/thing'
autoload :Foo, "foo"

module Outer # :nodoc:
  VERSION = "1.0"
  LIST = %w[
    a b
  ].freeze

  # A thing. With more.
  #
  # @param x [Integer]
  class Thing < Base::Parent
    include Comparable
    attr_accessor :a, :b
    attr_reader :c
    Pair = Struct.new(:x, :y) do
      def sum = x + y
    end
    alias_method :old, :new_one
    alias << push

    # Makes it.
    def initialize(a, b = {}, *rest, key:, other: "def fake", **opts, &block)
      @a = <<~TEXT
        class Fake
          def fake; end
        end
      TEXT
    end

    def self.build(
      name,
      size: 1
    )
      new(name)
    end

    def ==(other); true; end
    def [](i) i end
    def empty? = true
    def name=(v)
      @name = v
    end

    define_method(:dynamic) { |x| x }

    class << self
      def meta; end

      private

      def hidden_meta; end
    end

    if RUBY_VERSION > "3"
      def conditional; end
    end

    def later; end
    private :later

    private def inline(x) = x

    protected

    def guarded; end

    private

    SECRET = 1
    attr_reader :d
    def hidden
      def nested; end
    end

    public

    def shown; end
  end

  class Empty; end
  class Error < StandardError; end
  module_function

  def helper(x) x end
end

class Outer::Other::Deep
  def deep; end
end

def top_level(a) = a
