// Copyright somebody.

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
