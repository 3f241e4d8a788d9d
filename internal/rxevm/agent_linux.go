package rxevm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"time"
)

// module is the path of the repository, agentPackage that of the agent in it.
const (
	module       = "github.com/verbena-rdma/verbena"
	agentPackage = module + "/internal/rxevm/agent"
)

// buildTime bounds the build of the agent: seconds, unless the whole standard library is built
// too.
const buildTime = 5 * time.Minute

// ModuleRoot returns the folder of the repository: the one that contains the working folder, or
// else the one that this program was built from, if it still exists.
func ModuleRoot() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	_, source, _, _ := goruntime.Caller(0)
	for _, dir := range []string{here, filepath.Dir(source)} {
		for ; filepath.IsAbs(dir); dir = filepath.Dir(dir) {
			text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
			if err == nil && strings.HasPrefix(string(text), "module "+module+"\n") {
				return dir, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", errors.New("rxevm: not in the repository: the machine's agent is built from it")
}

// buildAgent builds the agent from the tree, statically: it runs before there is a root with
// libraries.
func buildAgent(ctx context.Context) ([]byte, error) {
	root, err := ModuleRoot()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rxevm-agent-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	file := filepath.Join(dir, "agent")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", file, agentPackage)
	cmd.Dir = root
	// Without the caller's flags, such as the race detector; without version stamps, since git
	// may be missing.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=-buildvcs=false")
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("rxevm: building the agent: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return os.ReadFile(file)
}
