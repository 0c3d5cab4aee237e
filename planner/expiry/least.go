package expiry

import "time"

// Lasting is a kind that adds a time to an instant of the row. With any other kind the row itself says when it is due.
type Lasting interface {
	// Least is that time; false: the row itself says when it is due.
	Least() (Interval, bool)
}

// LeastOf is Least of any kind.
func LeastOf(k Kind) (Interval, bool) {
	if l, lasting := k.(Lasting); lasting {
		return l.Least()
	}
	return Interval{}, false
}

// counted returns the time after which a row is due. If it is zero, the row's instant itself is the due time.
func counted(after Interval) (Interval, bool) { return after, !after.IsZero() }

// Least is After.
func (a *Age) Least() (Interval, bool) { return counted(a.After) }

// Least is After. Of milliseconds, the second that they are in counts.
func (e *Epoch) Least() (Interval, bool) { return counted(e.After) }

// Least is After.
func (k *ISO8601) Least() (Interval, bool) { return counted(k.After) }

// Least is After.
func (k *NumberOrText) Least() (Interval, bool) { return counted(k.After) }

// Least is After: the youngest of a bucket's rows is as old as its end.
func (b *Bucket) Least() (Interval, bool) { return counted(b.After) }

// Least is After, counted from what the registry says.
func (s *Sidecar) Least() (Interval, bool) { return counted(s.After) }

// Doubt is how far a column may be from the instant that it means. The database cannot tell. So a floor trusts such a column only if it says
// so.
type Doubt struct {
	Earlier  time.Duration // by so much may the instant that is read lie before the one that was meant
	Computed bool          // by the table from other columns, so that it may be any instant
}

// DoubtOf returns the doubt about a kind that is Lasting.
func DoubtOf(k Kind) Doubt {
	if d, doubtful := k.(interface{ doubt() Doubt }); doubtful {
		return d.doubt()
	}
	return Doubt{}
}

// doubt is that of a local time: it was written by a clock that may be as far behind UTC as any, and is read by one that may be before it.
func (m *Moment) doubt() Doubt {
	d := Doubt{Computed: m.Generated}
	if m.Type != Timestamptz {
		d.Earlier = westernmost + east(m.Zone)
	}
	return d
}

func (v *Value) doubt() Doubt { return Doubt{Computed: v.Generated} }

// doubt is that of a text without an offset, which is read in UTC.
func (k *ISO8601) doubt() Doubt { return Doubt{westernmost, k.Generated} }

func (k *NumberOrText) doubt() Doubt { return Doubt{westernmost, k.Generated} }

// AtLeast reports whether i is certainly not shorter than other, from any instant.
func (i Interval) AtLeast(other Interval) bool {
	if !i.MayBeShorter(other) {
		return true
	}
	const day = int64(24 * time.Hour / time.Microsecond)
	least, _ := daysOf(i.Months)
	_, most := daysOf(other.Months)
	return least*day+i.Exact() >= most*day+other.Exact()
}

// daysOf are the fewest and the most days that so many months can have. The bounds allow one leap day too few and one too many.
func daysOf(months int32) (least, most int64) {
	years, rest := int64(months/12), months%12
	fewest := [12]int64{0, 28, 59, 89, 120, 150, 181, 212, 242, 273, 303, 334}
	leapDays := years * 97 / 400
	least = 365*years + max(leapDays-1, 0) + fewest[rest]
	most = 365*years + fewest[rest]
	if years > 0 {
		most += leapDays + 2
	}
	if rest > 0 {
		most += 3
	}
	return least, most
}
