// Package lint checks what the compiler does not: that imports point down
// the list of rooms, that cgo and unsafe stay in theirs, that what is exported
// says what it is, that files stay small, formatted and finished.
//
// It has no door of its own: its tests check this repository, file by file and
// whatever the build tags, so that `go test ./...` finds what breaks a rule. The
// rooms and the rules are in docs/architecture.md and CONTRIBUTING.md.
package lint
