package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/bench/internal/measure"
)

// app is the application.
type app struct {
	does        string
	connections int
	rate        int
	cpu         int // percent of the machine that it is to take; 0: whatever its rate takes
	accounts    int
	lasts       time.Duration
	warm        time.Duration // how long it runs before it is measured: what slows down for it has to notice it first
}

// What a transaction of the application does.
const (
	bankTransfers = "bank" // as TPC-B's: update an account, a teller and a branch, read the account, insert a row of history
	keyLookups    = "keys" // update an account by its key, and read two; each statement commits by itself
)

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
	Most         float64 `json:"most"`
	Transactions float64 `json:"transactions_per_second"`
	Deleted      float64 `json:"rows_deleted_per_second"`
	Batch        float64 `json:"rows_of_a_batch"` // median

	began, ended time.Time
}

func (s sample) String() string {
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms, %.0f transactions/s, %.0f rows/s deleted in batches of %.0f", s.P50, s.P99, s.Transactions, s.Deleted, s.Batch)
}

// run lets all connections work for a time, or until ended is closed: the rest of it would say nothing.
func (a *app) run(ctx context.Context, s *server, table string, ended <-chan struct{}) (sample, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.warm+a.lasts, errOver)
	defer cancel()
	began := time.Now().Add(a.warm)
	latencies, errs := make([][]time.Duration, a.connections), make([]error, a.connections)
	var all sync.WaitGroup
	for i := range a.connections {
		all.Go(func() { latencies[i], errs[i] = a.connection(ctx, s, tables[table], began, ended) })
	}
	all.Wait()
	took := time.Now()
	if err := errors.Join(errs...); err != nil {
		return sample{}, err
	}
	sorted := slices.Concat(latencies...)
	if len(sorted) == 0 {
		return sample{}, errors.New("the application had no transaction: -time is too short, or -due too small")
	}
	slices.Sort(sorted)
	return sample{
		P50: measure.Milliseconds(sorted, 0.5), P99: measure.Milliseconds(sorted, 0.99), Most: measure.Milliseconds(sorted, 1),
		Transactions: float64(len(sorted)) / took.Sub(began).Seconds(), began: began, ended: took,
	}, nil
}

// errOver says that the application has run for long enough.
var errOver = errors.New("the time is over")

// connection does one transaction after the other, and returns how long each took that began when it is measured.
func (a *app) connection(ctx context.Context, s *server, table string, began time.Time, ended <-chan struct{}) ([]time.Duration, error) {
	conn, err := pgx.Connect(context.WithoutCancel(ctx), s.SocketURL("postgres", database))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var all []time.Duration
	for n := 0; ; n++ {
		from := time.Now()
		if a.rate > 0 {
			from = began.Add(time.Duration(n*a.connections)*time.Second/time.Duration(a.rate) - a.warm)
			timer := time.NewTimer(time.Until(from))
			select {
			case <-ctx.Done():
			case <-timer.C:
			}
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errOver) {
				return all, nil
			}
			return all, ctx.Err()
		case <-ended:
			return all, nil
		default:
		}
		if err := a.transaction(context.WithoutCancel(ctx), conn, table); err != nil {
			return all, err
		}
		if !from.Before(began) {
			all = append(all, time.Since(from))
		}
	}
}

func (a *app) transaction(ctx context.Context, conn *pgx.Conn, table string) error {
	if a.does == keyLookups {
		return a.lookUp(ctx, conn, table)
	}
	account, teller, branch := 1+rand.IntN(a.accounts), 1+rand.IntN(tellers), 1+rand.IntN(branches) //nolint:gosec // any will do
	amount := rand.IntN(1000)                                                                       //nolint:gosec // any will do
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var balance int64
		if _, err := tx.Exec(ctx, "update "+table+" set balance = balance + $2 where id = $1", account, amount); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "select balance from "+table+" where id = $1", account).Scan(&balance); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "update shop.tellers set balance = balance + $2 where id = $1", teller, amount); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "update shop.branches set balance = balance + $2 where id = $1", branch, amount); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "insert into shop.history values ($1, $2, $3, $4, now())", account, teller, branch, amount)
		return err
	})
}

func (a *app) lookUp(ctx context.Context, conn *pgx.Conn, table string) error {
	if _, err := conn.Exec(ctx, "update "+table+" set balance = balance + 1 where id = $1", 1+rand.IntN(a.accounts)); err != nil { //nolint:gosec // any will do
		return err
	}
	for range 2 {
		var balance int64
		err := conn.QueryRow(ctx, "select balance from "+table+" where id = $1", 1+rand.IntN(a.accounts)).Scan(&balance) //nolint:gosec // any will do
		if err != nil {
			return err
		}
	}
	return nil
}

// calibrate finds the rate at which the application, alone, keeps the machine busy for a.cpu percent of its time. It returns how many
// percent it came to.
func (a *app) calibrate(ctx context.Context, s *server, table string) (busy float64, err error) {
	const tries, trial = 5, 3 * time.Second
	probe := *a
	probe.lasts, probe.warm, probe.rate = trial, 0, 200
	for range tries {
		before, err := measure.Machine()
		if err != nil {
			return 0, err
		}
		if _, err := probe.run(ctx, s, table, nil); err != nil {
			return 0, err
		}
		after, err := measure.Machine()
		if err != nil {
			return 0, err
		}
		busy, a.rate = 100*after.BusySince(before), probe.rate
		if wrong := busy - float64(a.cpu); -2 < wrong && wrong < 2 {
			break
		}
		probe.rate = max(int(float64(probe.rate)*min(float64(a.cpu)/busy, 4)), 1)
	}
	return busy, nil
}
