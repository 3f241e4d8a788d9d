// Command 10-a-persistent-log appends to a log on another machine, which has every acknowledged record
// whatever fails.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/verbena-rdma/verbena/examples/ends"
	verbena "github.com/verbena-rdma/verbena/runtime"
	"github.com/verbena-rdma/verbena/runtime/plog"
)

const (
	fileVar = "VERBENA_LOG" // the environment variable with the path of the log
	logSize = 1 << 20
	lane    = 0 // each writer has a lane of its own
)

var example = ends.Example{Serve: server, Dial: client, Args: "[record ...]"}

func main() { example.Main() }

// server opens the log, prints what it has, and lends a lane of it to the client of the connection.
func server(ctx context.Context, w io.Writer, rt *verbena.Runtime, conn *verbena.Conn) (err error) {
	path := os.Getenv(fileVar)
	if path == "" {
		dir, err := os.UserCacheDir() // not the shared folder for temporary files: the file must be ours alone
		if err != nil {
			return err
		}
		path = filepath.Join(dir, "verbena.log")
	}
	region, err := rt.NewFileRegion(path, logSize, plog.Access)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, region.Close()) }()
	log, err := plog.Open(region)
	if errors.Is(err, plog.ErrNoLog) {
		log, err = plog.Create(region, plog.Config{})
	}
	if err != nil {
		return err
	}
	kind, method := region.Persistence()
	fmt.Fprintf(w, "server: the log is on a %s, persistent by %s\n", kind, method)
	records, err := log.Reader(lane)
	if err != nil {
		return err
	}
	for {
		rec, ok, err := records.Next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		fmt.Fprintf(w, "server: at %d: %s\n", rec.Position, rec.Payload)
	}
	// From here on the client writes into the log without this program.
	if err := log.Serve(ctx, conn); !errors.Is(err, verbena.ErrPeerClosed) {
		return err
	}
	return nil
}

// client appends its arguments to the log, a record each.
func client(ctx context.Context, w io.Writer, rt *verbena.Runtime, addr string, texts []string) (err error) {
	if len(texts) == 0 {
		texts = []string{"a record", "another record"}
	}
	conn, err := rt.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	log, err := plog.Join(ctx, rt, conn, lane)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "client: the log has everything before %d\n", log.Position())
	for _, text := range texts {
		at, err := log.Append(ctx, []byte(text)) // a WRITE, a FLUSH, and the answer of the FLUSH
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "client: persistent at %d: %s\n", at, text)
	}
	return nil
}
