package main

import (
	"context"
	"fmt"
)

// passing is how many rows passed through the audit while its memory was watched.
type passing struct {
	Transactions int `json:"transactions"`
	sample
}

// rowsOfTransaction are those of one of the application's transactions, where it has many.
const rowsOfTransaction = 1000

// passings let as many rows pass in one transaction, and in many.
func (b *bench) passings(ctx context.Context, p *place) (all []passing, err error) {
	for _, each := range []int{b.passing, rowsOfTransaction} {
		got, err := p.pass(ctx, b.passing, each)
		if err != nil {
			return all, fmt.Errorf("transactions of %d rows: %w", each, err)
		}
		b.Say("  %d rows, transactions: %d: %.0f rows/s, at most %d MB resident", got.Rows, got.Transactions, got.rate(), got.Memory>>20)
		all = append(all, got)
	}
	return all, nil
}

// pass lets the application delete rows, so many in each transaction, and lets them pass through the audit.
func (p *place) pass(ctx context.Context, rows, each int) (got passing, err error) {
	if p.first, err = p.fill(ctx, rows, false); err != nil {
		return got, err
	}
	p.deleted = rows
	if _, err := p.lapse.Run(ctx, p.audit(), "audit", "--once"); err != nil {
		return got, err
	}
	if err := p.deleteInSteps(ctx, p.first, rows, each); err != nil {
		return got, err
	}
	got.Transactions = (rows + each - 1) / each
	got.sample, err = p.drain(ctx, toKafka, rows, false)
	return got, err
}

// deleteInSteps deletes rows by their ids as the application, so many in each transaction.
func (p *place) deleteInSteps(ctx context.Context, first, rows, each int) error {
	return p.execute(ctx, fmt.Sprintf(`
		do $$ begin
			for low in %d..%d by %d loop
				delete from shop.sessions where id >= low and id < least(low + %[3]d, %d);
				commit;
			end loop;
		end $$`, first, first+rows-1, each, first+rows), "checkpoint")
}
