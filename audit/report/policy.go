package report

// Policy is what the log says of one policy.
type Policy struct {
	ID       int64     `json:"id"` // 0: only its deletions are in the log
	Name     string    `json:"name"`
	Table    string    `json:"table"`    // of the last version in the period; "" where the log does not say
	State    string    `json:"state"`    // at the end of the period; "" where the log does not say
	Version  int64     `json:"version"`  // in force at the end; 0: the log does not say
	Evidence string    `json:"evidence"` // due or claimed, of that version
	Action   string    `json:"action"`   // delete, soft or drop_partition
	Owner    string    `json:"owner"`
	Basis    string    `json:"basis"`
	Latitude string    `json:"latitude"`
	Verdict  Grade     `json:"verdict"`
	Findings []Finding `json:"findings"` // the worst first; none: pass

	Zero        []ZeroLine            `json:"zero"` // lines that must be zero: see ZeroLines for their order
	RollForward RollForward           `json:"roll_forward"`
	Deleted     Deleted               `json:"deleted"`
	Timeliness  Timeliness            `json:"timeliness"`
	Users       Users                 `json:"users"`
	Versions    List[Version]         `json:"versions"` // in force at the start, or made in the period
	States      List[StateChange]     `json:"states"`   // in the period
	Pauses      List[Pause]           `json:"pauses"`   // that reach into the period
	Quarantine  Quarantine            `json:"quarantine"`
	Holds       []int64               `json:"holds"` // numbers of those that touch its tables
	Snapshots   List[Snapshot]        `json:"snapshots"`
	Floors      List[RetainedAtLeast] `json:"floors"`
}

// ZeroLine is a number that must be zero, with the transactions where it is not.
type ZeroLine struct {
	About        About             `json:"about"`
	Figure       Figure            `json:"figure"`
	Transactions List[Transaction] `json:"transactions"`
}

// Transaction is where something is in the log.
type Transaction struct {
	Leaf   int64   `json:"leaf"` // of its first record
	XID    uint32  `json:"xid"`
	Commit string  `json:"commit_lsn"`
	At     Instant `json:"at"`
	Table  string  `json:"table"` // "" where it is of several, or of none that is known
	Rows   int64   `json:"rows"`  // as many as the line counts of it
}

// Deleted is what a policy deleted.
type Deleted struct {
	Rows       int64                  `json:"rows"`     // of its table: by row and by drop
	ByRow      int64                  `json:"by_row"`   // deletions in the write-ahead log, one each
	ByDrop     int64                  `json:"by_drop"`  // rows of dropped partitions, as the dropping function counted them
	Soft       int64                  `json:"soft"`     // rows that stay, with a column set
	Cascaded   int64                  `json:"cascaded"` // rows of other tables, by foreign keys
	Batches    int64                  `json:"batches"`  // transactions
	Days       []Day                  `json:"days"`     // in UTC, those with any
	Tables     List[TableDeleted]     `json:"tables"`   // by name
	Versions   []VersionDeleted       `json:"versions"` // ascending
	Partitions List[DroppedPartition] `json:"partitions"`
}

// Day is what was deleted on one day.
type Day struct {
	Day      string `json:"day"` // 2026-10-31
	ByRow    int64  `json:"by_row"`
	ByDrop   int64  `json:"by_drop"`
	Soft     int64  `json:"soft"`
	Cascaded int64  `json:"cascaded"`
}

// TableDeleted is what a policy deleted from one table, or partition.
type TableDeleted struct {
	Table    string `json:"table"`
	Root     string `json:"root"` // the table that it is a partition of; "" if of none
	ByRow    int64  `json:"by_row"`
	ByDrop   int64  `json:"by_drop"`
	Soft     int64  `json:"soft"`
	Cascaded int64  `json:"cascaded"`
}

// VersionDeleted is what a policy deleted under one version.
type VersionDeleted struct {
	Version  int64 `json:"version"`
	ByRow    int64 `json:"by_row"`
	ByDrop   int64 `json:"by_drop"`
	Soft     int64 `json:"soft"`
	Cascaded int64 `json:"cascaded"`
}

// DroppedPartition is a partition that a policy dropped whole. Rows and instants are as the dropping function counted them: the server
// publishes no row of it.
type DroppedPartition struct {
	Table   string  `json:"table"`
	Rows    int64   `json:"rows"`
	Oldest  Instant `json:"oldest"`
	Newest  Instant `json:"newest"`
	Version int64   `json:"version"`
	XID     uint32  `json:"xid"`
	At      Instant `json:"at"`
	Leaf    int64   `json:"leaf"`
}

// RollForward is a balance of what was due, between two counts that the executor made each in one snapshot of the database. Deletions are
// those that the one count did not see and the other one did, by the transactions in their snapshots.
type RollForward struct {
	NotAssessed     Reason    `json:"not_assessed,omitempty"` // why there is none; then the figures are not assessed either
	Start           *Snapshot `json:"start"`
	End             *Snapshot `json:"end"`
	DueStart        Figure    `json:"due_at_start"`
	HeldStart       Figure    `json:"held_at_start"` // due but for a hold
	QuarantineStart Figure    `json:"quarantined_at_start"`
	ByPolicy        Figure    `json:"deleted_by_policy"`
	ByUsers         Figure    `json:"deleted_by_users"` // due or not
	DueEnd          Figure    `json:"due_at_end"`
	HeldEnd         Figure    `json:"held_at_end"`
	QuarantineEnd   Figure    `json:"quarantined_at_end"`
	// FellDue is derived from the others: due and held at the end, less due and held at the start, with what was deleted. Rows that fell
	// due, less those that were given a later due time, and with those that users deleted before they were due.
	FellDue Figure `json:"fell_due_less_refreshed"`
}

// Snapshot is one count of what was due: the executor's word. Nothing in the write-ahead log shows a count.
type Snapshot struct {
	ID          string  `json:"id"`
	Version     int64   `json:"version"`
	Begun       Instant `json:"begun"`
	Taken       Instant `json:"taken"` // "" where it never was
	Counted     Instant `json:"counted"`
	Leaf        int64   `json:"leaf"`   // of the record with the snapshot; of the first one where there is none
	Cutoff      Instant `json:"cutoff"` // rows due at this instant were counted
	Seen        string  `json:"seen"`   // as PostgreSQL writes a snapshot
	NotCounted  string  `json:"not_counted"`
	Due         int64   `json:"due"`     // and not held
	Overdue     int64   `json:"overdue"` // of them, for longer than the latitude
	Held        int64   `json:"held"`
	Quarantined int64   `json:"quarantined"`
}

// Users is what others than policies did to the policy's table. Two policies of one table both have it.
type Users struct {
	Deleted    Figure `json:"deleted"` // rows, one each
	Truncates  Figure `json:"truncates"`
	Moves      Figure `json:"moves"`      // rows that went to another partition: no deletions
	Unverified Figure `json:"unverified"` // rows that went under a claim that proves nothing
	Due        Figure `json:"due"`
	NotDue     Figure `json:"not_due"`
	Held       Figure `json:"held"`
}

// Version is a version of a policy.
type Version struct {
	Version    int64   `json:"version"`
	Made       Instant `json:"made"`
	By         string  `json:"by"`
	Reason     string  `json:"reason"`
	Table      string  `json:"table"`
	Terms      *Terms  `json:"terms"` // null where the log does not say
	Definition string  `json:"definition"`
	InForce    bool    `json:"in_force_at_start"`
	Leaf       int64   `json:"leaf"`
}

// Terms are what a version says, without conditions: they may have values of rows in them.
type Terms struct {
	Kind       string `json:"kind"` // "": a column and an interval
	Column     string `json:"column"`
	Path       string `json:"path"`
	Unit       string `json:"unit"`
	Zone       string `json:"zone"`
	After      string `json:"after"`
	Span       string `json:"span"`
	TTLColumn  string `json:"ttl_column"`
	TTLDefault string `json:"ttl_default"`
	Sidecar    string `json:"sidecar"`
	Schedule   string `json:"schedule"` // every, daily or cron with its value
	Window     string `json:"window"`
	Where      bool   `json:"where"`
	Action     string `json:"action"`
	Sets       string `json:"sets"`
	Evidence   string `json:"evidence"`
	Latitude   string `json:"latitude"`
	Owner      string `json:"owner"`
	Basis      string `json:"basis"`
}

// StateChange is one change of a policy's state, or of its version in force.
type StateChange struct {
	At      Instant `json:"at"`
	State   string  `json:"state"`
	Version int64   `json:"version"`
	By      string  `json:"by"`
	Reason  string  `json:"reason"`
	ByHand  bool    `json:"by_hand"` // no command does that
	Leaf    int64   `json:"leaf"`
}

// Pause is a time in which a policy was paused.
type Pause struct {
	From    Instant `json:"from"`    // "" where it began before the log
	To      Instant `json:"to"`      // "": it goes on at the end of the period
	Seconds int64   `json:"seconds"` // within the period
	By      string  `json:"by"`
	Reason  string  `json:"reason"`
}

// Quarantine is how many rows could not be deleted. Which ones is in no log.
type Quarantine struct {
	AtStart Figure `json:"at_start"`
	Entered int64  `json:"entered"`
	Left    int64  `json:"left"` // deleted later, forgiven, or gone
	AtEnd   Figure `json:"at_end"`
}

// RetainedAtLeast is a period in lapse.yaml below which nothing of a table is deleted, as a version knew it.
type RetainedAtLeast struct {
	Version int64  `json:"version"`
	Table   string `json:"table"`
	Least   string `json:"least"`
	Below   Figure `json:"deleted_below"`
}
