package bodies

func quotes() map[string]interface{} {
	// hidden( } in a comment
	/* hidden( { */
	return map[string]interface{}{"hidden(}": '}', `{hidden(`: struct{ a int }{1}}
}

func (t *T[K]) results(f func(int) struct{ x int }) (x interface{}) {
	if f(1) == (struct{ x int }{2}) {
		return usedHelper(UsedType{Name: 'a'})
	}
	return nil
}

func assembly(x int) int

type Kept struct {
	Field func() int
	Other interface {
		Do(x int)
	}
}

var table = map[string]func(){
	"a": func() {
		usedInTable(1)
	},
}

func onOneLine() { usedOnOneLine(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11) }

func generic[T interface{ ~int | ~string }](a T) struct{ b int } {
	type Local struct{ c int }
	return struct{ b int }{usedpackage.Call(a)}
}

func short() { a() }

func (Kept) last() {}
