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

// The log of the tests with kills. The rings are small, so that they are used again and again.
const (
	killedLanes = 4
	killedSize  = 1 << 18
)

var killedConfig = Config{Lanes: killedLanes, LaneSize: 1 << 14}

// quick notices a killed peer soon.
var quick = verbena.Options{PeerTimeout: 200 * time.Millisecond, KeepAlive: 100 * time.Millisecond}

// kills returns how often a test kills: by default few times, and VERBENA_PLOG_KILLS in make stress.
func kills(t *testing.T, few int) int {
	if s := os.Getenv("VERBENA_PLOG_KILLS"); s != "" {
		return must.Get(strconv.Atoi(s))(t)
	}
	return few
}

// openOrCreate opens the log in the file, and makes one if there is none.
func openOrCreate(t testing.TB, rt *verbena.Runtime, path string) (*Log, *verbena.Region) {
	t.Helper()
	r := fileRegion(t, rt, path, killedSize)
	l, err := Open(r)
	if errors.Is(err, ErrNoLog) {
		l, err = Create(r, killedConfig)
	}
	must.Do(t, err)
	return l, r
}

// beVictim is the server. It prints where it listens, and serves until it is killed. Meanwhile it reads
// the lanes, prints the positions of records, and frees them.
func beVictim(t *testing.T, path string) {
	rt := must.Get(verbena.Open(verbena.Config{}))(t)
	l, _ := openOrCreate(t, rt, path)
	ln := must.Get(rt.ListenOptions("127.0.0.1:0", quick))(t)
	var out sync.Mutex
	fmt.Println(ln.Addr())
	for lane := range l.Lanes() {
		r := must.Get(l.Reader(lane))(t)
		go func() {
			var found []Record
			for {
				more, err := readAll(r)
				if err != nil {
					fmt.Println(err)
					os.Exit(1)
				}
				if found = append(found, more...); len(found) > 20 { // so that some records are left for the test
					var lines strings.Builder
					for _, rec := range found {
						fmt.Fprintln(&lines, "consumed", lane, rec.Position)
					}
					out.Lock()
					_, err := os.Stdout.WriteString(lines.String())
					out.Unlock()
					if err = errors.Join(err, r.Trim()); err != nil {
						fmt.Println(err)
						os.Exit(1)
					}
					found = nil
				}
				<-time.After(time.Millisecond)
			}
		}()
	}
	for {
		c := must.Get(ln.Accept(context.Background()))(t)
		go func() {
			_ = l.Serve(context.Background(), c)
			_ = c.Close(context.Background())
		}()
	}
}

// promises is what the writers of a lane know.
type promises struct {
	mu       sync.Mutex
	started  map[string]bool   // every text that was started
	sure     map[uint64]string // acknowledged, or read after a kill; not consumed
	consumed map[uint64]bool
}

// lives is a log whose server is killed again and again.
type lives struct {
	lanes   [killedLanes]promises
	numbers [killedLanes]int // of the last record
	unknown int              // records that were started and not acknowledged
}

func newLives() *lives {
	v := &lives{}
	for i := range v.lanes {
		v.lanes[i] = promises{started: map[string]bool{}, sure: map[uint64]string{}, consumed: map[uint64]bool{}}
	}
	return v
}

// write appends to a lane until the server is gone.
func (v *lives) write(ctx context.Context, rt *verbena.Runtime, addr string, lane int, rnd *rand.Rand) error {
	c, err := rt.DialOptions(ctx, addr, quick)
	if err != nil {
		return err
	}
	defer c.Abort()
	w, err := Join(ctx, rt, c, lane)
	if err != nil {
		return err
	}
	p := &v.lanes[lane]
	var pending []Pending
	var texts []string
	for {
		for len(pending) < 1+rnd.IntN(4) {
			v.numbers[lane]++
			text := fmt.Sprintf("%d %d %s", lane, v.numbers[lane], strings.Repeat("r", rnd.IntN(300)))
			p.mu.Lock()
			p.started[text] = true
			p.mu.Unlock()
			one, err := w.Start(ctx, []byte(text))
			if errors.Is(err, ErrFull) {
				if len(pending) == 0 {
					<-time.After(time.Millisecond) // the server is about to trim
				}
				break
			}
			if err != nil {
				giveUp(pending)
				return err
			}
			pending, texts = append(pending, one), append(texts, text)
		}
		if len(pending) == 0 {
			continue
		}
		if err := pending[0].Wait(ctx); err != nil {
			giveUp(pending)
			return err
		}
		p.mu.Lock()
		p.sure[pending[0].Position] = texts[0]
		p.mu.Unlock()
		pending, texts = pending[1:], texts[1:]
	}
}

func giveUp(pending []Pending) {
	for _, one := range pending {
		one.Discard()
	}
}

// hear notes what a killed server has said that it has consumed.
func (v *lives) hear(t *testing.T, said string) {
	for line := range strings.Lines(said) {
		f := strings.Fields(line)
		if !strings.HasSuffix(line, "\n") {
			continue // cut off: then nothing was trimmed
		}
		if len(f) != 3 || f[0] != "consumed" {
			t.Fatalf("the server said %q", line)
		}
		lane, at := must.Get(strconv.Atoi(f[1]))(t), must.Get(strconv.ParseUint(f[2], 10, 64))(t)
		v.lanes[lane].consumed[at] = true
		delete(v.lanes[lane].sure, at)
	}
}

// check compares a log with the promises: the records that were acknowledged are there, unless the
// server has consumed them; those that are there were started; they are in order.
func (v *lives) check(l *Log) error {
	var errs []error
	for lane := range v.lanes {
		p := &v.lanes[lane]
		r, err := l.Reader(lane)
		if err != nil {
			return err
		}
		found, err := readAll(r)
		if err != nil {
			return fmt.Errorf("lane %d: %w", lane, err)
		}
		last := 0
		there := map[uint64]string{}
		for _, rec := range found {
			text := string(rec.Payload)
			there[rec.Position] = text
			if !p.started[text] {
				errs = append(errs, fmt.Errorf("lane %d: nobody has appended %.40q at %d", lane, text, rec.Position))
			}
			var number int
			if _, err := fmt.Sscanf(text, "%d %d", new(int), &number); err != nil || number <= last {
				errs = append(errs, fmt.Errorf("lane %d: record %d follows record %d", lane, number, last))
			}
			last = number
		}
		for at, text := range p.sure {
			if there[at] != text {
				errs = append(errs, fmt.Errorf("lane %d: the record at %d was acknowledged, %.40q, and the log has %.40q", lane, at, text, there[at]))
			}
		}
		for at, text := range there {
			if p.sure[at] == "" && !p.consumed[at] {
				v.unknown++
				p.sure[at] = text // it was read: from now on it must be there
			}
		}
	}
	return errors.Join(errs...)
}

// Rule: a server that is killed at any moment, while four writers of another process append, has lost
// no record that was acknowledged, when it is started again and again; and its log has no other records
// than those that were appended.
func TestKilledServerLosesNothing(t *testing.T) {
	if path := os.Getenv(victim); path != "" {
		beVictim(t, path)
	}
	if sys.Portable {
		t.Skip("the portable build cannot map files, and does not notice a killed peer soon")
	}
	path := filepath.Join(t.TempDir(), "log")
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	v := newLives()
	client := openRuntime(t)
	checker := openRuntime(t)
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
		ctx, cancel := context.WithTimeout(t.Context(), hang)
		for lane := range killedLanes {
			mine := rand.New(rand.NewPCG(rnd.Uint64(), 4))
			writers.Go(func() { // ends with an error, when its server is killed
				if err := v.write(ctx, client, strings.TrimSpace(line), lane, mine); errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("life %d, lane %d: %v", life, lane, err)
				}
			})
		}
		<-time.After(time.Duration(rnd.IntN(120)) * time.Millisecond) // the kill may hit any stage
		kill()
		heard := <-said
		_ = cmd.Wait()
		cancel() // the writers need not find out by themselves: runtime has tests of that
		writers.Wait()
		v.hear(t, heard)
		l, r := openOrCreate(t, checker, path)
		if err := v.check(l); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		must.Do(t, r.Close())
	}
	sure, consumed := 0, 0
	for i := range v.lanes {
		sure += len(v.lanes[i].sure)
		consumed += len(v.lanes[i].consumed)
	}
	t.Logf("%d records were consumed, %d are in the log, %d were found without an acknowledgement", consumed, sure, v.unknown)
	if consumed+sure < 100 {
		t.Errorf("only %d records: too few to show anything", consumed+sure)
	}
}

// Rule: the checker of the tests with kills finds a planted lost record, a torn one, and one that nobody
// has appended.
func TestPromisesAreChecked(t *testing.T) {
	v := newLives()
	plant := func() *Log {
		g := image(make([]byte, killedSize))
		l := must.Get(create(g, killedConfig, 3))(t)
		for lane := range killedLanes {
			s := must.Get(l.claim(lane))(t)
			for n := range 5 {
				text := fmt.Sprintf("%d %d ", lane, n+1)
				rec := record{position: s.claimed + uint64(n), generation: s.generation, lane: lane, kind: kindData}
				copy(l.ringOf(lane)[n*LineSize:], rec.encode(nil, l.id, []byte(text)))
				v.lanes[lane].started[text] = true
				v.lanes[lane].sure[rec.position] = text
			}
		}
		return l
	}
	must.Do(t, v.check(plant()))
	for name, c := range map[string]struct {
		fault func(*Log)
		want  string
	}{
		"lost":            {func(l *Log) { clear(l.ringOf(2)[4*LineSize:]) }, "was acknowledged"},
		"lost in between": {func(l *Log) { clear(l.ringOf(2)[2*LineSize : 3*LineSize]) }, "was acknowledged"},
		"torn":            {func(l *Log) { l.ringOf(1)[3*LineSize+33] ^= 1 }, "was acknowledged"},
		"never appended":  {func(*Log) { v.lanes[0].started = map[string]bool{} }, "nobody has appended"},
		"changed and whole": {func(l *Log) {
			rec := record{position: 4, generation: 1, lane: 3, kind: kindData}
			copy(l.ringOf(3)[4*LineSize:], rec.encode(nil, l.id, []byte("3 9 ")))
		}, "was acknowledged"},
	} {
		l := plant()
		c.fault(l)
		if err := v.check(l); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
