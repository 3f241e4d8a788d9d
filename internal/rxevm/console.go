package rxevm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/verbena-rdma/verbena/internal/rxevm/wire"
)

// maxLog is the retained size of the kernel's log: the last 1 MB, some ten thousand lines.
const maxLog = 1 << 20

// maxLine is the limit for a line of the log: longer than any line of the kernel, and a program
// that writes to the console cannot fill our memory.
const maxLine = 64 << 10

// fault matches the kernel's fault messages: BUG and WARNING (include/asm-generic/bug.h,
// kernel/panic.c), oopses and panics, hung tasks (kernel/hung_task.c), stalls
// (kernel/rcu/tree_stall.h), soft lockups (a BUG), and the sanitizers. A program's own "general
// protection fault" does not match.
var fault = regexp.MustCompile(`\bBUG: |kernel BUG at |\bWARNING: |\bOops: |Kernel panic|INFO: task \S+ blocked for more than|rcu: INFO: |UBSAN: `)

// words has one word of each alternative of fault. They are searched first: the expression is a
// hundred times slower, and a console can be busy.
var words = []string{"BUG", "WARNING: ", "Oops: ", "Kernel panic", "INFO: ", "UBSAN: "}

// faulty reports whether a line of the log is part of a fault.
func faulty(line string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) && fault.MatchString(line)
}

// console collects the machine's serial output: the kernel's log, and the agent's messages before
// there is a link.
type console struct {
	mu     sync.Mutex               // guards the following fields
	log    []byte                   // its end, at most twice maxLog
	faults []string                 // the lines that match fault
	marks  map[uint32]chan struct{} // closed when the end of a job is logged
	setup  string                   // the reason why the setup failed
}

// read reads lines until the end of r.
func (c *console) read(r io.Reader) {
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			c.take(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// take handles one line.
func (c *console) take(line []byte) {
	text := strings.TrimSpace(string(line))
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, job, ok := strings.Cut(text, wire.EndMark); ok {
		if n, err := strconv.ParseUint(job, 10, 32); err == nil {
			c.mark(uint32(n))
			return // not part of the log
		}
	}
	if _, why, ok := strings.Cut(text, wire.SetupMark); ok {
		c.setup = why
	}
	if faulty(text) {
		c.faults = append(c.faults, text)
	}
	c.log = append(append(c.log, text...), '\n')
	if len(c.log) > 2*maxLog { // not for each line
		c.log = append(c.log[:0], ending(c.log)...)
	}
}

// ending returns the last maxLog bytes of a log, from the beginning of a line.
func ending(log []byte) []byte {
	if over := len(log) - maxLog; over > 0 {
		return log[over+bytes.IndexByte(log[over:], '\n')+1:]
	}
	return log
}

// mark records the end of a job; the caller holds mu.
func (c *console) mark(job uint32) {
	if ch, ok := c.marks[job]; ok {
		close(ch)
		delete(c.marks, job)
	}
}

// expect returns a channel that is closed when the log has the end of the job. It is called
// before the job is started.
func (c *console) expect(job uint32) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.marks == nil {
		c.marks = map[uint32]chan struct{}{}
	}
	ch := make(chan struct{})
	c.marks[job] = ch
	return ch
}

// kernelPanic is the beginning of the kernel's last line (kernel/panic.c, vpanic), and initDied
// its continuation when the first process has ended (kernel/exit.c, do_exit): that process is the
// agent, so the fault is not the kernel's.
const (
	kernelPanic = "Kernel panic - not syncing: "
	initDied    = kernelPanic + "Attempted to kill init!"
)

// panicked returns the line with which the kernel panicked by itself; empty if it did not, or the
// agent had given up.
func (c *console) panicked() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.setup != "" {
		return ""
	}
	for _, line := range c.faults {
		if strings.Contains(line, kernelPanic) && !strings.Contains(line, initDied) {
			return line
		}
	}
	return ""
}

// seen returns the number of faults so far.
func (c *console) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.faults)
}

// since returns an error for the first fault after the first n; nil if there is none.
func (c *console) since(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.faults) <= n {
		return nil
	}
	return &KernelError{Line: c.faults[n], Log: string(ending(c.log))}
}

// text returns the log.
func (c *console) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(ending(c.log))
}

// why returns the reason why the agent gave up; empty if it did not.
func (c *console) why() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.setup
}
