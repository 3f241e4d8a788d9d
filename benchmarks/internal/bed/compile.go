package bed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/verbena-rdma/verbena/verbs/ibv/nulldev"
)

// compileTime bounds the compiler: a second on an idle machine.
const compileTime = time.Minute

// Compile compiles a program in C that calls the null device into dir, with the compiler and the optimization of the
// null device, and returns its path. It blocks until then, or until ctx ends. Any goroutine may call it, with a dir of
// its own.
//
// Errors: those of the compiler; the context's.
func Compile(ctx context.Context, dir, name string, source []byte, libs nulldev.Paths) (string, error) {
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	file, program := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(file, source, 0o644); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, compileTime)
	defer cancel()
	lib := filepath.Dir(libs.Verbs)
	cmd := exec.CommandContext(ctx, cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-I"+filepath.Join(lib, "abi"), "-I"+filepath.Join(lib, "c"),
		"-o", program, file, libs.Verbs, "-Wl,-rpath,"+lib)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s.c: %w: %s", name, err, out)
	}
	return program, nil
}
