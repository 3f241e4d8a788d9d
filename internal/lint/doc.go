// Package lint checks rules that the compiler does not: imports follow the layering, cgo and
// unsafe stay in their packages, exported symbols have comments, files are small, formatted and
// finished.
//
// It exports nothing for other code: its tests check this repository, file by file and for all
// build tags, so that `go test ./...` finds violations. The layers ("rooms") and the rules are in
// docs/architecture.md and CONTRIBUTING.md.
package lint
