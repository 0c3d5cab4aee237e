package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/bench/internal/measure"
)

// app is the application. Its transactions begin by a schedule, whatever became of those before: an open loop.
type app struct {
	connections int
	accounts    int
	lasts       time.Duration
	warm        time.Duration // how long it runs beside each way before it is measured
}

// Where the accounts are.
const (
	otherTable = "other"
	ownTable   = "own"
)

// tables has the name of the accounts' table.
var tables = map[string]string{otherTable: "shop.accounts", ownTable: "shop.sessions"}

// sample is what the application felt in one round. Times are in milliseconds.
type sample struct {
	P50          float64 `json:"p50"`
	P99          float64 `json:"p99"`
	P999         float64 `json:"p999"`
	Most         float64 `json:"most"`
	Transactions float64 `json:"transactions_per_second"`
	CPU          float64 `json:"cpu"` // the part of all processors that server and application took
	Deleted      float64 `json:"rows_deleted_per_second"`
	Batch        float64 `json:"rows_of_a_batch"` // median

	began, ended time.Time
}

func (s sample) String() string {
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms, p99.9 %.1f ms, %.0f transactions/s, %.0f %% CPU, %.0f rows/s deleted in batches of %.0f", s.P50, s.P99, s.P999,
		s.Transactions, 100*s.CPU, s.Deleted, s.Batch)
}

// load is what the application does: so many transactions a second, on one table.
type load struct {
	table string
	rate  float64
}

// latency is how long a transaction took from the time at which it was to begin.
type latency struct{ from, took time.Duration }

// schedule is when transactions are to begin, from the application's beginning on: at random, as people come. It is the same each time.
type schedule struct {
	at    []time.Duration
	taken atomic.Int64
}

func newSchedule(rate float64, lasts time.Duration) *schedule {
	s, random := &schedule{}, rand.New(rand.NewPCG(1, 2)) //nolint:gosec // any will do
	for at := time.Duration(0); at < lasts; at += time.Duration(random.ExpFloat64() / rate * float64(time.Second)) {
		s.at = append(s.at, at)
	}
	return s
}

// next returns the time of the next transaction that nobody took.
func (s *schedule) next() (at time.Duration, ok bool) {
	n := s.taken.Add(1) - 1
	if n >= int64(len(s.at)) {
		return 0, false
	}
	return s.at[n], true
}

// run lets all connections work for a time, or until ended is closed: what follows would say nothing.
func (a *app) run(ctx context.Context, s *server, of load, ended <-chan struct{}) (sample, error) {
	todo, latencies, errs := newSchedule(of.rate, a.warm+a.lasts), make([][]latency, a.connections), make([]error, a.connections)
	ready, start := make(chan struct{}, a.connections), make(chan struct{})
	var began time.Time
	var all sync.WaitGroup
	for i := range a.connections {
		all.Go(func() { latencies[i], errs[i] = a.connection(ctx, s, of.table, todo, ready, start, &began, ended) })
	}
	for range a.connections {
		<-ready
	}
	runtime.GC()
	before, err := s.cpu()
	if err != nil {
		return sample{}, err
	}
	began = time.Now()
	close(start)
	all.Wait()
	got := sample{began: began.Add(a.warm), ended: time.Now()}
	after, err := s.cpu()
	if err = errors.Join(append(errs, err)...); err != nil {
		return got, err
	}
	got.CPU = (after - before).Seconds() / got.ended.Sub(began).Seconds() / float64(runtime.NumCPU())
	return got, got.count(slices.Concat(latencies...), a.warm)
}

// count enters the latencies of those transactions that were to begin after a time.
func (s *sample) count(all []latency, from time.Duration) error {
	all = slices.DeleteFunc(all, func(l latency) bool { return l.from < from })
	if len(all) == 0 {
		return errors.New("the application had no transaction: -time is too short, or -due too small")
	}
	slices.SortFunc(all, func(a, b latency) int { return cmp.Compare(a.took, b.took) })
	sorted := make([]time.Duration, len(all))
	for i, l := range all {
		sorted[i] = l.took
	}
	s.P50, s.P99, s.P999 = measure.Milliseconds(sorted, 0.5), measure.Milliseconds(sorted, 0.99), measure.Milliseconds(sorted, 0.999)
	s.Most = measure.Milliseconds(sorted, 1)
	s.Transactions = float64(len(sorted)) / s.ended.Sub(s.began).Seconds()
	return nil
}

// connection does one transaction of the schedule after the other. One that no connection was free for begins late, and counts from
// when it was to begin.
func (a *app) connection(ctx context.Context, s *server, table string, todo *schedule, ready chan<- struct{}, start <-chan struct{}, began *time.Time, ended <-chan struct{}) ([]latency, error) {
	conn, err := s.Connect(ctx, database)
	ready <- struct{}{}
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	all := make([]latency, 0, len(todo.at))
	<-start
	for {
		at, ok := todo.next()
		if !ok {
			return all, ctx.Err()
		}
		if wait := time.Until(began.Add(at)); wait > 0 { // Go's own timers are late by a millisecond
			sleep := syscall.NsecToTimespec(wait.Nanoseconds())
			_ = syscall.Nanosleep(&sleep, nil)
		}
		select {
		case <-ctx.Done():
			return all, ctx.Err()
		case <-ended:
			return all, nil
		default:
		}
		if err := a.transaction(ctx, conn, table); err != nil {
			return all, err
		}
		all = append(all, latency{at, time.Since(*began) - at})
	}
}

// transaction updates a row and reads two.
func (a *app) transaction(ctx context.Context, conn *pgx.Conn, table string) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "update "+table+" set balance = balance + $2 where id = $1", a.account(), rand.IntN(1000)); err != nil { //nolint:gosec // any will do
			return err
		}
		for range 2 {
			var balance int64
			if err := tx.QueryRow(ctx, "select balance from "+table+" where id = $1", a.account()).Scan(&balance); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *app) account() int { return 1 + rand.IntN(a.accounts) } //nolint:gosec // any will do

// cpu is what the server, the application and what runs beside it have taken of the processors.
func (s *server) cpu() (time.Duration, error) {
	server, err := measure.CPU(s.PID())
	if err != nil {
		return 0, err
	}
	own, err := measure.CPU(os.Getpid())
	return server + own, err
}

// calibrate finds the rate at which the application, alone, takes a part of all processors.
func (a *app) calibrate(ctx context.Context, s *server, table string, part float64) (load, error) {
	short := *a
	short.lasts, short.warm = min(2*time.Second, a.lasts), min(time.Second, a.warm)
	of := load{table: tables[table], rate: 500}
	for range 4 {
		got, err := short.run(ctx, s, of, nil)
		if err != nil {
			return of, err
		}
		of.rate *= min(part/max(got.CPU, 0.01), 4)
	}
	return of, nil
}
