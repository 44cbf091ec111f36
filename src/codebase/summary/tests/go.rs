use super::*;

pub(super) const TEXT: &str = r####"// Copyright somebody.

//go:build linux

// Package room holds
// things. More of them.
package room

import "fmt"
import (
	"net/http"

	. "strings" // dots
	_ "embed"
	alias "example.com/a/b"
)

// Limit is how many.
const Limit = 3

const (
	// A is the first.
	A Kind = iota // trailing
	B
	c, D = "func Fake() {}", 2
)

var (
	ErrGone = errors.New("gone")
	table   = map[string]int{
		"a": 1,
	}
)
var x, Y int

// Thing is one.
//
//nolint:all
type Thing[K comparable, V any] struct {
	sync.Mutex
	*Base
	// Name is its name.
	Name, alias string `json:"name"` // trailing
	next *Thing[K, V]
	Do   func(ctx context.Context) error
	Opts struct {
		Deep bool
	}
}

type (
	// Reader reads.
	Reader[T any] interface {
		io.Closer
		Read(p []byte) (n int, err error)
		~int | ~string
	}
	Handler func(http.ResponseWriter, *http.Request)
	Alias = map[string]Thing[string, int]
)

// Go goes.
//
//go:noinline
func (t *Thing[K, V]) Go(
	ctx context.Context, // why
	names ...string,
) (count int, err error) {
	type local struct{ a int }
	helper := func() {}
	return http.Get(names[0], Other{})
}

func größe(x int) int { return x }

func Map[T, U any](in []T, f func(T) U) []U { text := `
func Fake() {}
`; return make(text) }

func assembly(x int) int
"####;

#[test]
fn items() {
    insta::assert_snapshot!(outline(Language::Go, TEXT), @r"
    Constant Limit
    Constant A
    Constant B
    Constant c -
    Constant D
    Constant ErrGone
    Constant table -
    Constant x -
    Constant Y
    Type Thing
      Field Mutex
      Field Base
      Field Name
      Field alias -
      Field next -
      Field Do
      Field Opts
    Interface Reader
      Field Closer
      Method Read
      Field ~int | ~string -
    Type Handler
    Alias Alias
    Method Go
    Function größe -
    Function Map
    Function assembly -
    ");
}

#[test]
fn signatures() {
    let of = |name| signature(Language::Go, TEXT, name);
    insta::assert_snapshot!(of("Thing"), @"type Thing[K comparable, V any] struct");
    insta::assert_snapshot!(of("Reader"), @"Reader[T any] interface");
    insta::assert_snapshot!(of("Go"), @r"
    func (t *Thing[K, V]) Go(
    	ctx context.Context, // why
    	names ...string,
    ) (count int, err error)
    ");
    insta::assert_snapshot!(of("table"), @"table");
    insta::assert_snapshot!(of("Name"), @r#"Name, alias string `json:"name"`"#);
    insta::assert_snapshot!(of("Opts"), @r"
    Opts struct {
    		Deep bool
    	}
    ");
    insta::assert_snapshot!(of("Limit"), @"const Limit = 3");
}

#[test]
fn imports_and_docs() {
    insta::assert_snapshot!(imports(Language::Go, TEXT), @r"
    9 fmt: 
    11 net/http: 
    13 strings: *
    14 embed: 
    15 example.com/a/b:
    ");
    insta::assert_snapshot!(docs(Language::Go, TEXT), @r"
    Package room holds things.
    Limit: Limit is how many.
    A: A is the first.
    Thing: Thing is one.
    Name: Name is its name.
    alias: Name is its name.
    Reader: Reader reads.
    Go: Go goes.
    ");
}

#[test]
fn names_used() {
    let (_, uses) = read(Language::Go, TEXT);
    insta::assert_snapshot!(uses.join(" "), @"Context Deep Get Kind New Other Request ResponseWriter any bool byte comparable error int make string text");
}
