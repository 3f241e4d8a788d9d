// Package must ends a test at an error that is not what it tests. For tests only.
package must

// T is what a *testing.T, *testing.B and *rapid.T have.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Do ends the test if err is not nil. On the test's goroutine.
func Do(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Get gives the value of a call that must not fail: must.Get(f())(t) ends the test if the
// error is not nil, and is the value otherwise. On the test's goroutine.
func Get[V any](v V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		Do(t, err)
		return v
	}
}
