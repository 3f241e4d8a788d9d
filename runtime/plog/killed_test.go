package plog

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/internal/sys"
	verbena "github.com/verbena-rdma/verbena/runtime"
)

// victim is the environment variable with the file of a server that a test kills.
const victim = "VERBENA_PLOG_VICTIM"

// kills returns how often a test kills: by default few times, and VERBENA_PLOG_KILLS in make stress.
func kills(t *testing.T, few int) int {
	if s := os.Getenv("VERBENA_PLOG_KILLS"); s != "" {
		return must.Get(strconv.Atoi(s))(t)
	}
	return few
}

// beVictim is the server of the log in a file. It prints where it listens, serves until it is killed,
// and reads each lane meanwhile, on a goroutine of its own.
func beVictim(t *testing.T, c verbena.Config, addr, path string, read func(*Reader)) {
	rt := must.Get(verbena.Open(c))(t)
	l, _ := openOrCreate(t, rt, path)
	ln := must.Get(rt.Listen(addr))(t)
	fmt.Println(ln.Addr())
	for lane := range l.Lanes() {
		go read(must.Get(l.Reader(lane))(t))
	}
	for {
		c := must.Get(ln.Accept(context.Background()))(t)
		go func() {
			_ = l.Serve(context.Background(), c)
			_ = c.Close(context.Background())
		}()
	}
}

// Rule: a server that is killed at any moment, while four writers of another process append, has lost
// no record that was acknowledged, when it is started again and again; and its log has no other records
// than those that were appended.
func TestKilledServerLosesNothing(t *testing.T) {
	if path := os.Getenv(victim); path != "" {
		beVictim(t, verbena.Config{}, "127.0.0.1:0", path, func(r *Reader) {
			fmt.Println(consume(r))
			os.Exit(1)
		})
	}
	if sys.Portable {
		t.Skip("the portable build cannot map files")
	}
	path := filepath.Join(t.TempDir(), "log")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	v := newLives()
	client, checker := openRuntime(t), openRuntime(t)
	for life := range kills(t, 5) {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), victim+"="+path)
		cmd.Stderr = os.Stderr
		pipe := must.Get(cmd.StdoutPipe())(t)
		must.Do(t, cmd.Start())
		kill := sync.OnceFunc(func() { _ = cmd.Process.Kill() })
		t.Cleanup(kill)
		out := bufio.NewReader(pipe)
		line, err := out.ReadString('\n')
		must.Do(t, err)
		said := make(chan string, 1)
		go func() {
			b, _ := io.ReadAll(out)
			said <- string(b)
		}()
		var writers sync.WaitGroup
		var mu sync.Mutex // guards v and acked
		acked, want := 0, 10+rnd.IntN(50)
		enough := make(chan struct{}) // closed at the wanted acknowledgement
		ctx, cancel := context.WithTimeout(t.Context(), hang)
		for lane := range killedLanes {
			a := &appender{lane: lane, number: v[lane].last,
				started: func(n int) { mu.Lock(); defer mu.Unlock(); v[lane].last = max(v[lane].last, n) },
				acked: func(at uint64, n int) {
					mu.Lock()
					defer mu.Unlock()
					v.acknowledged(lane, at, n)
					if acked++; acked == want {
						close(enough)
					}
				},
			}
			mine := rand.New(rand.NewPCG(rnd.Uint64(), 4))
			writers.Go(func() { // ends with an error, when its server is killed
				if err := a.run(ctx, client, strings.TrimSpace(line), mine); errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("life %d, lane %d: %v", life, lane, err)
				}
			})
		}
		var late <-chan time.Time
		if life%2 == 1 { // the kill may hit any stage, on a busy machine before a writer has joined
			late = time.After(time.Duration(rnd.IntN(120)) * time.Millisecond)
		}
		select {
		case <-enough:
		case <-late:
		case <-ctx.Done():
			mu.Lock()
			t.Errorf("life %d: only %d records were acknowledged", life, acked)
			mu.Unlock()
		}
		kill()
		heard := <-said
		_ = cmd.Wait()
		cancel() // the writers need not find out by themselves: runtime has tests of that
		writers.Wait()
		v.hear(t, heard)
		l, r := openOrCreate(t, checker, path)
		if err := v.check(everything(t, l)); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		must.Do(t, r.Close())
	}
	v.report(t, 20)
}
