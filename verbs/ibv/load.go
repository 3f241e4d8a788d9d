//go:build linux && cgo && !portable

package ibv

// #cgo CFLAGS: -O2 -Wall -Wextra
// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"strings"
	"sync"
	"unsafe"

	_ "github.com/verbena-rdma/verbena/verbs/ibv/abi" // the headers that this package compiles
)

// verbsTable and cmTable are the function tables of loaded libraries, in C memory. They are never
// freed, see shim.h.
type (
	verbsTable = C.struct_shim_verbs
	cmTable    = C.struct_shim_cm
)

// libraries are the two libraries of a provider, each loaded on first use: a program that opens
// no connection needs no librdmacm.
type libraries struct {
	cfg   Config
	verbs func() (*verbsTable, error)
	cm    func() (*cmTable, error)
}

func newLibraries(c Config) *libraries {
	return &libraries{
		cfg: c,
		verbs: onSuccess(func() (*verbsTable, error) {
			t, err := loadVerbs(c.Verbs)
			if err == nil {
				keepFork(t, c.Fork)
			}
			return t, err
		}),
		cm: onSuccess(func() (*cmTable, error) { return loadCM(c.RDMACM) }),
	}
}

// onSuccess returns a function that calls load until that succeeds once, and then returns its result. A failure may
// pass: the process may lack descriptors, or the library may be installed later. Any goroutine may call the function.
func onSuccess[T any](load func() (*T, error)) func() (*T, error) {
	var mu sync.Mutex
	var loaded *T
	return func() (t *T, err error) {
		mu.Lock()
		defer mu.Unlock()
		if loaded == nil {
			if t, err = load(); err != nil {
				return nil, err
			}
			loaded = t
		}
		return loaded, nil
	}
}

func loadVerbs(path string) (*verbsTable, error) {
	t := (*verbsTable)(C.calloc(1, C.size_t(unsafe.Sizeof(verbsTable{}))))
	err := load(path, verbsPackage, func(p, what *C.char) C.int { return C.shim_load_verbs(p, t, what) })
	if err != nil {
		C.free(unsafe.Pointer(t))
		return nil, err
	}
	return t, nil
}

func loadCM(path string) (*cmTable, error) {
	t := (*cmTable)(C.calloc(1, C.size_t(unsafe.Sizeof(cmTable{}))))
	err := load(path, rdmacmPackage, func(p, what *C.char) C.int { return C.shim_load_cm(p, t, what) })
	if err != nil {
		C.free(unsafe.Pointer(t))
		return nil, err
	}
	return t, nil
}

// load calls one of the loaders and converts its result to an error.
func load(path, pkg string, loader func(path, what *C.char) C.int) error {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	what := (*C.char)(C.calloc(1, C.SHIM_WHAT))
	defer C.free(unsafe.Pointer(what))
	switch loader(p, what) {
	case C.SHIM_LOADED:
		return nil
	case C.SHIM_NO_SYMBOL:
		symbol, version, _ := strings.Cut(C.GoString(what), " ")
		return &SymbolError{Library: path, Symbol: symbol, Version: version}
	default:
		return &LibraryError{Library: path, Package: pkg, Reason: C.GoString(what)}
	}
}
