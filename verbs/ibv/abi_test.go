package ibv

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/ibv/abi"
)

// newNames are the names that older libraries lack, marked with "since".
var (
	structLine = regexp.MustCompile(`^(struct|union) (vb_\w+) \{$`)
	enumLine   = regexp.MustCompile(`^\t(VB_\w+)(?: = .*?)?,?(\s*/\* since .*)?$`)
	plainField = regexp.MustCompile(`^\t[\w ]+?[ *]+(\w+)(?:\[\w+\])?;`)
	innerField = regexp.MustCompile(`^\t\t+[\w ]+?[ *]+(\w+)(?:\[\w+\])?;`)
	funcField  = regexp.MustCompile(`^\t[\w ]+?[ *]*\(\*(\w+)\)\(`)
	missing    = regexp.MustCompile(`(?:‘|'|member named ‘|member named ')(\w+)(?:’|') (?:undeclared|not declared)|no member named (?:‘|')(\w+)(?:’|')`)
)

// nested are members of unnamed and inner unions, with the paths to them. The parser of the
// headers finds only their names, and checks that all are here.
var nested = map[string][]string{
	"vb_send_wr": {
		"wr.rdma.remote_addr", "wr.rdma.rkey", "wr.atomic.remote_addr", "wr.atomic.compare_add", "wr.atomic.swap",
		"wr.atomic.rkey", "wr.ud.ah", "wr.ud.remote_qpn", "wr.ud.remote_qkey", "qp_type.xrc.remote_srqn",
		"bind_mw.mw", "bind_mw.rkey", "bind_mw.bind_info", "tso.hdr", "tso.hdr_sz", "tso.mss",
	},
	"vb_async_event":   {"element.cq", "element.qp", "element.srq", "element.port_num"},
	"vb_odp_caps":      {"per_transport_caps.rc_odp_caps", "per_transport_caps.uc_odp_caps", "per_transport_caps.ud_odp_caps"},
	"vb_rdma_addr":     {"src_addr", "src_sin", "src_sin6", "src_storage", "dst_addr", "dst_sin", "dst_sin6", "dst_storage", "addr.ibaddr"},
	"vb_rdma_cm_event": {"param.conn", "param.ud"},
}

// unlike are members that have another name in the system's headers, or that must not be
// compared.
var unlike = map[string]bool{
	"vb_gid.words":     true, // the system has names for the halves
	"vb_send_wr.words": true, // and for these
	"vb_device._ops":   true, // an inner structure of two pointers there
}

// prefixes are structures whose end an old library lacks: only their members are compared.
var prefixes = map[string]bool{
	"vb_device_attr_ex": true, // query_device_ex takes the size
	"vb_port_attr":      true, // query_port takes the size, which is larger since v59
	"vb_qp_ex":          true, // two members more since v46
	"vb_verbs_context":  true, // found from its end, see fromEnd
}

// declared returns the declarations of the headers: members by structure, and enumerators with a
// flag for those marked as new.
func declared(t *testing.T) (members map[string][]string, kinds map[string]string, enums map[string]bool) {
	t.Helper()
	members, kinds, enums = map[string][]string{}, map[string]string{}, map[string]bool{}
	files, err := fs.Glob(abi.Headers, "*.h")
	if err != nil || len(files) == 0 {
		t.Fatalf("no headers: %v", err)
	}
	for _, f := range files {
		text := must.Get(fs.ReadFile(abi.Headers, f))(t)
		in := ""
		for line := range strings.SplitSeq(string(text), "\n") {
			if m := structLine.FindStringSubmatch(line); m != nil {
				in, kinds[m[2]] = m[2], m[1]
				members[in] = slices.Clone(nested[in])
				continue
			}
			if strings.HasPrefix(line, "}") {
				in = ""
			}
			if m := enumLine.FindStringSubmatch(line); m != nil && in == "" {
				enums[m[1]] = m[2] != ""
			}
			if in == "" {
				continue
			}
			if m := innerField.FindStringSubmatch(line); m != nil && !reached(in, m[1]) {
				t.Errorf("%s of %s is compared with nothing: put it into nested", m[1], in)
			}
			if m := funcField.FindStringSubmatch(line); m != nil {
				members[in] = append(members[in], m[1])
			} else if m := plainField.FindStringSubmatch(line); m != nil {
				members[in] = append(members[in], m[1])
			}
		}
	}
	return members, kinds, enums
}

// reached reports whether an inner member is in nested, or must not be compared.
func reached(in, member string) bool {
	return unlike[in+"."+member] || slices.ContainsFunc(nested[in], func(path string) bool {
		return path == member || strings.HasSuffix(path, "."+member)
	})
}

// theirs returns the system's form of a name.
func theirs(name string) string {
	switch {
	case name == "vb_verbs_context":
		return "verbs_context"
	case strings.HasPrefix(name, "vb_rdma_"), strings.HasPrefix(name, "VB_RDMA_"), strings.HasPrefix(name, "VB_RAI_"),
		strings.HasPrefix(name, "VB_AF_"), name == "vb_sockaddr_ib":
		return name[3:]
	case strings.HasPrefix(name, "VB_"):
		return "IBV_" + name[3:]
	}
	return "ibv_" + name[3:]
}

// checks returns one assertion a line, as C, for all declarations. It leaves out lines with names
// in without.
func checks(t *testing.T, without map[string]bool) (text string, lines int) {
	members, kinds, enums := declared(t)
	var b strings.Builder
	b.WriteString("#include <stddef.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n#include <infiniband/ib.h>\n#include \"vb_rdmacm.h\"\n")
	b.WriteString("#define SAME(a, b) _Static_assert((a) == (b), #a)\n")
	same := func(format string, args ...any) {
		fmt.Fprintf(&b, "SAME("+format+");\n", args...)
		lines++
	}
	for name, fields := range members {
		ours, other := kinds[name]+" "+name, kinds[name]+" "+theirs(name)
		if !prefixes[name] {
			same("sizeof(%s), sizeof(%s)", ours, other)
		}
		for _, f := range fields {
			switch {
			case unlike[name+"."+f] || without[f]:
			case name == "vb_verbs_context":
				same("sizeof(%s) - offsetof(%s, %s), sizeof(%s) - offsetof(%s, %s)", ours, ours, f, other, other, f)
			default:
				same("offsetof(%s, %s), offsetof(%s, %s)", ours, f, other, f)
				same("sizeof(((%s *)0)->%s), sizeof(((%s *)0)->%s)", ours, f, other, f)
			}
		}
	}
	for name := range enums {
		if !without[theirs(name)] {
			same("(long)%s, (long)%s", name, theirs(name))
		}
	}
	same("VB_ABI_IS_EXTENDED, __VERBS_ABI_IS_EXTENDED")
	return b.String(), lines
}

// needSystemHeaders skips the test where there are no system headers.
func needSystemHeaders(t *testing.T) {
	t.Helper()
	if _, err := compile(t, "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n", "-fsyntax-only"); err != nil {
		t.Skip("no <infiniband/verbs.h> to compare with: apt-get install libibverbs-dev librdmacm-dev")
	}
}

// lacking returns the names that the compiler did not find.
func lacking(out string) map[string]bool {
	names := map[string]bool{}
	for _, m := range missing.FindAllStringSubmatch(out, -1) {
		names[m[1]+m[2]] = true
	}
	return names
}

// Our declarations agree with the system's headers: each size, offset and value.
func TestABIIsTheSystems(t *testing.T) {
	needSystemHeaders(t)
	// A first run finds the names that an old library lacks; they must be marked.
	text, _ := checks(t, nil)
	out, _ := compile(t, text, "-fsyntax-only", "-Iabi", "-fmax-errors=0")
	_, _, enums := declared(t)
	without := lacking(out)
	for name := range without {
		if ours := "VB_" + strings.TrimPrefix(name, "IBV_"); strings.HasPrefix(name, "IBV_") && !enums[ours] {
			t.Errorf("%s is not in the system's headers, and %s is not marked as new", name, ours)
		}
	}
	for name := range without {
		if !strings.HasPrefix(name, "IBV_") && name != "wr_flush" && name != "wr_atomic_write" {
			t.Errorf("the system's headers have no member %s", name)
		}
	}
	text, lines := checks(t, without)
	if lines < 500 {
		t.Errorf("only %d comparisons: the headers were not read", lines)
	}
	if out, err := compile(t, text, "-fsyntax-only", "-Iabi"); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Logf("%d comparisons, without %d names that the installed version lacks", lines, len(without))
}
