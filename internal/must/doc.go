// Package must ends a test at an error that is not the subject of the test. For tests only.
package must

// T is the part common to *testing.T, *testing.B and *rapid.T.
type T interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Do ends the test if err is not nil. Call it on the test's goroutine.
func Do(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// Get returns the value of a call that must not fail: must.Get(f())(t) ends the test if the error
// is not nil, and returns the value otherwise. Call it on the test's goroutine.
func Get[V any](v V, err error) func(T) V {
	return func(t T) V {
		t.Helper()
		Do(t, err)
		return v
	}
}
