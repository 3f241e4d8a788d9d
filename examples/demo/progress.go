package main

import (
	"fmt"
	"io"
)

// progress prints the progress of a move: on a terminal on one line that is rewritten, elsewhere
// one line per quarter. One goroutine at a time uses it.
type progress struct {
	w        io.Writer
	terminal bool
	size     int
	by       way
	shown    int // the last step shown
}

// Steps of a move that are shown.
const (
	terminalSteps = 50
	plainSteps    = 4
)

// begin is called before the first at of a move.
func (p *progress) begin(by way) {
	p.by, p.shown = by, 0
	if p.terminal {
		p.shown = -1 // show the beginning, too
		p.at(0)
	}
}

// at reports the number of bytes moved so far.
func (p *progress) at(done int) {
	steps := plainSteps
	if p.terminal {
		steps = terminalSteps
	}
	step := done * steps / p.size
	if step == p.shown {
		return
	}
	p.shown = step
	if p.terminal {
		fmt.Fprintf(p.w, "\r%-14s  %3d %%, %d of %d bytes", p.by, done*100/p.size, done, p.size)
	} else {
		fmt.Fprintf(p.w, "    %s: %3d %%\n", p.by, done*100/p.size)
	}
}

// end erases the progress line for the result.
func (p *progress) end() {
	if p.terminal {
		fmt.Fprint(p.w, "\r\033[K") // erase the line
	}
}
