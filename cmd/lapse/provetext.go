package main

import (
	"fmt"
	"strings"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/rows"
)

// proven is the result of `lapse prove`.
type proven struct {
	File      string           `json:"file"` // "" if nothing was found
	Deletions []provenDeletion `json:"deletions"`
	Missing   []string         `json:"missing"` // deletions that were found but cannot be shown, and why
	Searched  string           `json:"searched"`
}

type provenDeletion struct {
	Table     string    `json:"table"`
	Op        string    `json:"op"`
	Cause     string    `json:"cause"`
	Policy    string    `json:"policy"`
	Committed time.Time `json:"committed"`
	XID       uint32    `json:"xid"`
	LSN       string    `json:"commit_lsn"`
	Log       string    `json:"log"`
	Record    int64     `json:"record"`  // the record's number in the log, from 0
	Records   int64     `json:"records"` // the number of records that the checkpoint covers
}

func provenOf(s *rows.Shown) *provenDeletion {
	return &provenDeletion{
		Table: s.Table, Op: s.Op, Cause: s.Cause, Policy: s.Policy, Committed: s.Committed, XID: s.XID, LSN: s.CommitLSN.String(), Log: s.Log,
		Record: s.Leaf, Records: s.Size,
	}
}

// searched says where lapse searched, and what the search leaves open.
func (p *prover) searched() string {
	switch {
	case !p.forgot:
		return "all events that were published"
	case p.tried:
		return "the events that are still there, and each transaction of the log that deleted from the table"
	default:
		return "the events that are still there: older ones are gone; name the key by its columns, as in --key '{\"id\":\"42\"}', to try it against the log"
	}
}

// print prints the result as text.
func (r *proven) print(a *app) (err error) {
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(a.out, format, args...)
		}
	}
	switch {
	case len(r.Deletions) == 0 && len(r.Missing) == 0:
		line("no deletion of this row was found; searched: %s\n", r.Searched)
	case len(r.Deletions) > 1:
		line("the row was deleted %d times\n", len(r.Deletions))
	}
	for i := range r.Deletions {
		line("%s\n", r.Deletions[i].sentence())
	}
	for _, what := range r.Missing {
		line("cannot be shown: %s\n", what)
	}
	if r.File != "" {
		line("the receipt is in %s: it is personal data, since anyone who has it can try keys until one fits\n", r.File)
	}
	return err
}

// sentence describes a deletion of a receipt.
func (d *provenDeletion) sentence() string {
	var did string
	switch d.Op {
	case evidence.SoftDelete.String():
		did = "was marked as deleted in " + d.Table + ", where it still is,"
	case evidence.Move.String():
		did = "was moved out of " + d.Table + " to another partition, and not deleted,"
	default:
		did = "was deleted from " + d.Table
	}
	var who string
	switch {
	case d.Policy != "":
		who = " by policy " + d.Policy
	case d.Cause == evidence.Unverified.String():
		who = " by someone whose claim to be a policy does not verify"
	case d.Cause == evidence.User.String():
		who = " by someone other than a policy"
	}
	when := ""
	if !d.Committed.IsZero() {
		when = fmt.Sprintf(" at %s in transaction %d,", d.Committed.UTC().Format("2006-01-02T15:04:05.000000Z"), d.XID)
	}
	return fmt.Sprintf("the row %s%s%s as record %d of the log %s says; its checkpoint signs %s", did, who, strings.TrimSuffix(when, ",")+",", d.Record, d.Log,
		counted(uint64(d.Records), "record"))
}
