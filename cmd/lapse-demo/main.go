package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"lapse/internal/kafkaserver"
)

// patience is how long the whole demonstration may take on a slow machine.
const patience = 5 * time.Minute

func main() {
	lapse := flag.String("lapse", "bin/lapse", "the lapse binary")
	keep := flag.Bool("keep", false, "leave servers and `lapse serve` running until interrupted, and print their addresses")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	d := &demonstration{lapse: *lapse, keep: *keep, http: keptHTTP, out: os.Stdout}
	err := d.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nlapse-demo: %v\n", err)
		os.Exit(1)
	}
}

// demonstration is one run of the program.
type demonstration struct {
	lapse string // path of the lapse binary
	keep  bool   // leave all of it running until the context ends
	http  string // where the "lapse serve" that is left running serves HTTP
	out   io.Writer
}

// run starts the servers, tells the story, and takes everything away again.
func (d *demonstration) run(ctx context.Context) (err error) {
	lapse, err := filepath.Abs(d.lapse)
	if err != nil {
		return err
	}
	if _, err := os.Stat(lapse); err != nil {
		return fmt.Errorf("%w: `make build` makes it", err)
	}
	dir, err := os.MkdirTemp("", "lapse-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	begin := time.Now()
	told, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fmt.Fprintln(d.out, "Starting throw-away servers …")
	place, err := startServers(told, filepath.Join(dir, "lapse.yaml"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.close()) }()
	if place.kafka != nil {
		fmt.Fprintf(d.out, "PostgreSQL %s and Kafka %s are up.\n", place.postgres.Install().Version, place.kafka.Version())
	} else {
		_, missing := kafkaserver.Find()
		fmt.Fprintf(d.out, "PostgreSQL %s is up. Without Kafka the topics are files of a folder (sink: dir: in lapse.yaml): %v.\n", place.postgres.Install().Version, missing)
	}

	db, err := place.connect(told)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	s := &story{lapse: lapse, dir: dir, env: place.environment(dir), db: db, url: place.url, out: d.out, color: isTerminal(d.out)}
	defer func() { err = errors.Join(err, s.stopServe()) }()
	if err := s.tell(told); err != nil {
		return errors.Join(err, s.showLog())
	}
	fmt.Fprintf(d.out, "\nDone in %d s.\n", int(time.Since(begin).Seconds()))
	if !d.keep {
		return nil
	}
	return d.stay(ctx, s, place)
}

// isTerminal reports whether text that goes there may have colors.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// stay leaves all of it running until the person interrupts.
func (d *demonstration) stay(ctx context.Context, s *story, place *servers) error {
	if err := s.startServe(ctx, d.http); err != nil {
		return err
	}
	fmt.Fprintf(d.out, `
Still running, until you press Ctrl-C:

   PostgreSQL  %s
   topics      %s
   page        http://%s/
   metrics     http://%s/metrics
   report      %s

   export LAPSE_CONFIG=%s LAPSE_KEYS=%s
   %s events --follow
`, place.url("postgres"), place.sink(), d.http, d.http, filepath.Join(s.dir, "report.html"), place.config, filepath.Join(s.dir, ".config", "lapse", "keys"), s.lapse)
	<-ctx.Done()
	return nil
}

// keptHTTP is the address that documentation names.
const keptHTTP = "127.0.0.1:7432"
