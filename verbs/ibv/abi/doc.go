// Package abi holds this library's own declarations, in C, of the stable ABI of
// libibverbs and librdmacm: vb_verbs.h and vb_rdmacm.h, which include the rest.
//
// verbs/ibv compiles against them, so that it needs no package of the system;
// verbs/ibv/nulldev implements both libraries on them. It is a Go package so
// that the headers travel with a vendored copy of the module, and so that the
// go command sees when one changes.
package abi

import "embed"

// Headers are the C headers, by file name. They may be read from any goroutine.
//
//go:embed *.h
var Headers embed.FS
