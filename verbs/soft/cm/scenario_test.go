package cm

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the golden scenarios under testdata")

// scenario runs one script: lines beginning with "> " are commands, the lines after them are the
// actions of the machines.
//
//	> policy accept|reject|hold    B's answer to a request
//	> nolisten, backlog N          instead of a plain listener on B
//	> connect NAME [QPN]           A requests a connection to B
//	> accept|reject|disconnect|close|established NODE NAME
//	> lose REQ 2                   the next two REQs are lost
//	> double REP 1, slow REP 50ms  the second copy arrives after 50 ms
//	> run 1s, state
type scenario struct {
	*sim
	a, b   *simNode
	out    strings.Builder
	conns  map[string]*Conn // "A c1"
	names  map[*Conn]string
	policy string
	lose   map[string]int
	double map[string]int
	slow   map[string]time.Duration
	qpn    uint32
}

func runScenario(script string) string {
	s := &scenario{
		sim: newSim(), conns: map[string]*Conn{}, names: map[*Conn]string{}, policy: "accept", qpn: 100,
		lose: map[string]int{}, double: map[string]int{}, slow: map[string]time.Duration{},
	}
	s.trace = func(format string, a ...any) {
		fmt.Fprintf(&s.out, "%8v %s\n", s.now, fmt.Sprintf(format, a...))
	}
	s.fate = func(_, _ *simNode, m *MAD) []time.Duration {
		k := Attr(get16(m, offAttr)).String()
		switch {
		case s.lose[k] > 0:
			s.lose[k]--
			return nil
		case s.double[k] > 0:
			s.double[k]--
			return []time.Duration{simHop, max(2*simHop, s.slow[k])}
		}
		return []time.Duration{simHop}
	}
	s.a = s.node("A", Config{}, 1, s.event)
	s.b = s.node("B", Config{}, 1, s.event)
	listening := false
	for _, line := range strings.Split(script, "\n") {
		cmd, ok := strings.CutPrefix(line, "> ")
		if !ok {
			if strings.HasPrefix(line, "#") {
				s.out.WriteString(line + "\n")
			}
			continue
		}
		s.out.WriteString(line + "\n")
		f := strings.Fields(cmd)
		if !listening && f[0] != "policy" {
			listening = true
			if f[0] != "nolisten" && f[0] != "backlog" {
				s.listen(0)
			}
		}
		s.command(f)
	}
	return s.out.String()
}

func (s *scenario) listen(backlog int) {
	if _, err := s.b.Listen(7, backlog, nil); err != nil {
		panic(err)
	}
}

func (s *scenario) command(f []string) {
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	num, _ := strconv.Atoi(arg(2))
	dur, _ := time.ParseDuration(arg(len(f) - 1))
	c := s.conns[arg(1)+" "+arg(2)]
	var err error
	switch f[0] {
	case "policy":
		s.policy = f[1]
	case "nolisten":
	case "backlog":
		n, _ := strconv.Atoi(f[1])
		s.listen(n)
	case "connect":
		qpn := uint32(num)
		if qpn == 0 {
			s.qpn++
			qpn = s.qpn
		}
		var nc *Conn
		nc, err = s.a.Connect(s.now, &ConnectParam{Dst: s.b.at, ServiceID: 7, QPN: qpn, Private: []byte(f[1])}, nil)
		s.name(s.a, f[1], nc)
	case "accept":
		if c == nil {
			panic(fmt.Sprintf("no connection %v in\n%s", f, s.out.String()))
		}
		s.qpn++
		err = c.Accept(s.now, &AcceptParam{QPN: s.qpn, Private: []byte("welcome")})
	case "reject":
		err = c.Reject(s.now, RejConsumer, []byte("no"))
	case "disconnect":
		err = c.Disconnect(s.now, nil)
	case "close":
		c.Close(s.now)
	case "hold-rtu":
	case "established":
		c.Established()
	case "lose":
		s.lose[f[1]] = num
	case "double":
		s.double[f[1]] = num
	case "slow":
		s.slow[f[1]] = dur
	case "run":
		s.run(s.now + dur)
	case "state":
		fmt.Fprintf(&s.out, "%8v A has %d, B has %d\n", s.now, s.a.Conns(), s.b.Conns())
		for _, k := range []string{"A c1", "B c1", "A c2", "B c2"} {
			if c := s.conns[k]; c != nil {
				fmt.Fprintf(&s.out, "%8v %s is %v\n", s.now, k, c.State())
			}
		}
	default:
		panic("no such command: " + f[0])
	}
	if err != nil {
		fmt.Fprintf(&s.out, "%8v error: %v\n", s.now, err)
	}
}

func (s *scenario) name(n *simNode, name string, c *Conn) {
	s.conns[n.name+" "+name] = c
	s.names[c] = name
}

func (s *scenario) event(n *simNode, e Event) {
	if e.Kind == EvRequest {
		s.name(n, strings.TrimRight(string(e.REQ.Private[:]), "\x00"), e.Conn)
	}
	extra := ""
	if e.REJ != nil {
		extra = fmt.Sprintf(", reason %d%s", e.REJ.Reason, text(e.REJ.Private[:]))
	}
	if e.Timeout {
		extra = ", no answer"
	}
	s.trace("%s reports %v of %s%s", n.name, e.Kind, s.names[e.Conn], extra)
	switch e.Kind {
	case EvRequest:
		if s.policy != "hold" {
			s.command([]string{s.policy, n.name, s.names[e.Conn]})
		}
	case EvReply:
		if s.policy != "hold-rtu" {
			if err := e.Conn.SendRTU(s.now, nil); err != nil {
				panic(err)
			}
		}
	case EvDisconnected:
		if e.Conn.State() == StateDREQRcvd {
			if err := e.Conn.SendDREP(s.now, nil); err != nil {
				panic(err)
			}
		}
	}
}

// TestScenarios compares the messages of the machines, their order and times with testdata.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios under testdata: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			got := runScenario(string(want))
			if *update {
				if err := os.WriteFile(f, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("the machines did\n%s\nwant\n%s", got, want)
			}
		})
	}
}
