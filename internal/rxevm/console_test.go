package rxevm

import (
	"errors"
	"strings"
	"testing"
)

// The kernel's fault messages of 6.12 are recognized; errors of programs and ordinary boot
// messages are not.
func TestFaultsAreFound(t *testing.T) {
	for _, line := range []string{
		"[   12.345678] BUG: kernel NULL pointer dereference, address: 0000000000000010",
		"[   12.345678] BUG: unable to handle page fault for address: ffffc90000000000",
		"[   12.345678] watchdog: BUG: soft lockup - CPU#1 stuck for 130s! [kworker/1:1:12]",
		"[   12.345678] kernel BUG at drivers/infiniband/sw/rxe/rxe_qp.c:100!",
		"[   12.345678] WARNING: CPU: 0 PID: 77 at drivers/infiniband/sw/rxe/rxe_pool.c:116 rxe_pool_cleanup+0x4c/0x60",
		"[   12.345678] Oops: Oops: 0000 [#1] PREEMPT SMP NOPTI",
		"[   12.345678] Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1]",
		"[   12.345678] INFO: task rdma:812 blocked for more than 60 seconds.",
		"[   12.345678] rcu: INFO: rcu_preempt self-detected stall on CPU",
		"[   12.345678] Kernel panic - not syncing: Fatal exception in interrupt",
		"[   12.345678] UBSAN: array-index-out-of-bounds in drivers/x.c:1:2",
	} {
		var c console
		c.read(strings.NewReader("before\n" + line + "\nafter\n"))
		var k *KernelError
		if err := c.since(0); !errors.As(err, &k) || k.Line != line || !strings.Contains(k.Log, "after") {
			t.Errorf("%q: %v, want a KernelError with the log around it", line, err)
		}
		if err := c.since(1); err != nil {
			t.Errorf("%q is still new after it was seen: %v", line, err)
		}
	}
	var c console
	c.read(strings.NewReader(`[    1.0] Warning: unable to open an initial console.
[    2.0] traps: x.test[77] general protection fault ip:4010d6 sp:7ffc error:0 in x.test[401000+1000]
[    3.0] x.test[78]: segfault at 0 ip 00000000004010d6 sp 00007ffc error 4
[    4.0] DEBUG: no bug
[    5.0] rdma_rxe: loaded
`))
	if err := c.since(0); err != nil {
		t.Errorf("no fault of the kernel, and found %v", err)
	}
}

// The mark of a job's end is reported to its waiter, whatever surrounds it, and is not part of
// the log.
func TestMarksInTheLog(t *testing.T) {
	var c console
	one, two := c.expect(1), c.expect(2)
	c.read(strings.NewReader("[ 1.0] verbena: ended job 2\r\n[ 1.1] verbena: ended job 99\n[ 1.2] verbena: ended job x\n"))
	select {
	case <-two:
	default:
		t.Error("the end of job 2 was not told")
	}
	select {
	case <-one:
		t.Error("the end of job 1 was told, and was not there")
	default:
	}
	if log := c.text(); strings.Contains(log, "job 2") || !strings.Contains(log, "job x") {
		t.Errorf("the log is %q", log)
	}
}

// The log keeps its end and is bounded; a line without an end is bounded too.
func TestLogIsBounded(t *testing.T) {
	var c console
	c.read(strings.NewReader(strings.Repeat(strings.Repeat("x", 99)+"\n", maxLog/50) + strings.Repeat("y", 2*maxLog) + "\nthe last\n"))
	log := c.text()
	if len(log) > maxLog || !strings.HasSuffix(log, "the last\n") {
		t.Errorf("%d bytes kept, at most %d; the end is %q", len(log), maxLog, log[max(0, len(log)-20):])
	}
}

// The reason why the agent gave up is kept separately.
func TestSetupReason(t *testing.T) {
	var c console
	c.read(strings.NewReader("verbena: setup: mounting root (9p) at /ro: no such device\n"))
	if got := c.why(); got != "mounting root (9p) at /ro: no such device" {
		t.Errorf("the reason is %q", got)
	}
}
