package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// patience is how long the whole demonstration may take on a slow machine.
const patience = 3 * time.Minute

func main() {
	lapse := flag.String("lapse", "bin/lapse", "the lapse binary")
	keep := flag.Bool("keep", false, "leave servers and `lapse serve` running until interrupted, and print their addresses")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := demonstrate(ctx, *lapse, *keep)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\nlapse-demo: %v\n", err)
		os.Exit(1)
	}
}

// demonstrate starts the servers, tells the story, and takes everything away again.
func demonstrate(ctx context.Context, lapse string, keep bool) (err error) {
	lapse, err = filepath.Abs(lapse)
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
	fmt.Println("Starting a throw-away PostgreSQL and Kafka …")
	place, err := startServers(told, filepath.Join(dir, "lapse.yaml"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, place.close()) }()
	fmt.Printf("PostgreSQL %s and Kafka %s are up.\n", place.postgres.Install().Version, place.kafka.Version())

	db, err := place.connect(told)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close(context.WithoutCancel(ctx))) }()
	s := &story{lapse: lapse, dir: dir, env: place.environment(dir), db: db, url: place.url, out: os.Stdout}
	defer func() { err = errors.Join(err, s.stopServe()) }()
	if err := s.tell(told); err != nil {
		return errors.Join(err, s.showLog())
	}
	fmt.Printf("\nDone in %d s.\n", int(time.Since(begin).Seconds()))
	if !keep {
		return nil
	}
	return stay(ctx, s, place)
}

// stay leaves all of it running until the person interrupts.
func stay(ctx context.Context, s *story, place *servers) error {
	if err := s.startServe(ctx, keptHTTP); err != nil {
		return err
	}
	fmt.Printf(`
Still running, until you press Ctrl-C:

   PostgreSQL  %s
   Kafka       %s
   metrics     http://%s/metrics

   export LAPSE_CONFIG=%s LAPSE_KEYS=%s
   %s events --follow
`, place.url("postgres"), place.kafka.Addr(), keptHTTP, place.config, filepath.Join(s.dir, ".config", "lapse", "keys"), s.lapse)
	<-ctx.Done()
	return nil
}

// keptHTTP is where the "lapse serve" that is left running serves HTTP.
const keptHTTP = "127.0.0.1:7432"
