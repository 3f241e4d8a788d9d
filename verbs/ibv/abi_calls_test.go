package ibv

import (
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/verbena-rdma/verbena/internal/must"
	"github.com/verbena-rdma/verbena/verbs/ibv/abi"
)

// funcMember is a member that is a function pointer: result, name, arguments.
var funcMember = regexp.MustCompile(`(?m)^\t([\w ]+?[ *]*)\(\*(\w+)\)\(([^;]*)\);`)

// ourName matches the name of one of our types.
var ourName = regexp.MustCompile(`\bvb_\w+`)

// inTheirWords returns a declaration with the system's types.
func inTheirWords(text string) string {
	return ourName.ReplaceAllStringFunc(text, func(name string) string {
		if name == "vb_enum" {
			return "unsigned int" // the compiler's type for an enum without negative values
		}
		return theirs(name)
	})
}

// memberCalls returns assertions that the function pointers in our structures have the same
// argument and result types as the system's.
func memberCalls(t *testing.T, without map[string]bool) (text string, lines int) {
	t.Helper()
	files := must.Get(fs.Glob(abi.Headers, "*.h"))(t)
	var b strings.Builder
	for _, f := range files {
		text := must.Get(fs.ReadFile(abi.Headers, f))(t)
		for _, part := range regexp.MustCompile(`(?m)^(?:struct|union) vb_\w+ \{$`).FindAllStringIndex(string(text), -1) {
			in := strings.Fields(string(text[part[0]:part[1]]))[1]
			body, _, _ := strings.Cut(string(text[part[1]:]), "\n}")
			for _, m := range funcMember.FindAllStringSubmatch(body, -1) {
				if without[m[2]] {
					continue
				}
				fmt.Fprintf(&b, "_Static_assert(__builtin_types_compatible_p(__typeof__(((struct %s *)0)->%s), %s(*)(%s)), \"%s.%s\");\n",
					theirs(in), m[2], inTheirWords(m[1]), inTheirWords(m[3]), in, m[2])
				lines++
			}
		}
	}
	return b.String(), lines
}

// exports returns assertions that the functions in the loader's tables are declared as the system
// declares them. shim.h is read with the system's types under our names.
func exports(t *testing.T) string {
	t.Helper()
	_, kinds, _ := declared(t)
	var b strings.Builder
	for _, macro := range []string{"ibv_reg_mr", "ibv_reg_mr_iova", "ibv_query_port"} {
		fmt.Fprintf(&b, "#undef %s\n", macro)
	}
	b.WriteString("#define VB_RDMACM_H\n#define vb_enum unsigned int\n")
	for name := range kinds {
		fmt.Fprintf(&b, "#define %s %s\n", name, theirs(name))
	}
	b.WriteString("#include \"shim.h\"\n" +
		"#define EXPORTED(needed, version, result, name, args) " +
		"_Static_assert(__builtin_types_compatible_p(__typeof__(name), result args), #name);\n" +
		"SHIM_VERBS(EXPORTED)\nSHIM_RDMACM(EXPORTED)\n")
	return b.String()
}

// All calls match the system's headers: each function pointer and each function of the tables, by
// its types.
func TestABICallsAreTheSystems(t *testing.T) {
	needSystemHeaders(t)
	const head = "#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n"
	text, lines := memberCalls(t, map[string]bool{})
	out, err := compile(t, head+text, "-fsyntax-only", "-fmax-errors=0")
	if without := lacking(out); err != nil && len(without) > 0 { // an old library's headers
		text, lines = memberCalls(t, without)
		out, err = compile(t, head+text, "-fsyntax-only")
	}
	if err != nil {
		t.Errorf("function pointers: %v\n%s", err, out)
	}
	if lines < 30 {
		t.Errorf("only %d function pointers: the headers were not read", lines)
	}
	// Two declarations differ on purpose: one encodes byte order in a type of the same size, the
	// other fills an older structure (shim_query_port).
	const alike = "#include <stdint.h>\n#include <linux/types.h>\n#define __be64 uint64_t\n#define _compat_ibv_port_attr ibv_port_attr\n"
	if out, err := compile(t, alike+head+exports(t), "-fsyntax-only", "-I."); err != nil {
		t.Errorf("functions of the tables: %v\n%s", err, out)
	}
	t.Logf("%d function pointers, and the functions of the tables", lines)
}
