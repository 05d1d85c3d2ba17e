"""CPU seconds of two programs by turns: `dist2` and `rel3` in this folder are `keyhush` of both profiles."""
import subprocess,resource,shutil,statistics,json,os
def run(p,args):
    shutil.rmtree('out',ignore_errors=True)
    b=resource.getrusage(resource.RUSAGE_CHILDREN); subprocess.run([p,*args],stdout=subprocess.PIPE,stderr=subprocess.PIPE,check=True)
    a=resource.getrusage(resource.RUSAGE_CHILDREN); return a.ru_utime+a.ru_stime-b.ru_utime-b.ru_stime, a.ru_utime-b.ru_utime
subprocess.run(['./dist2','data','synth','--jsonl','--quiet','--users','20000','--posts-per-user','20','--words-per-post','20','--seed','1','--out','posts.jsonl'])
T=["train","--quiet","--threads","1","--out","out"]
L=["--set","participation.cohort=2","--set","evaluation.every=20"]
for name,args,n in [("train, 700 rounds of 2 users, 36 evaluations",T+["--set","rounds=700"]+L,5),("train --set rounds=6",T+["--set","rounds=6"],5),("data import, 20,000 users",["data","import","--quiet","--threads","1","--replace","--out","posts.store","posts.jsonl"],7)]:
    r={'dist2':[], 'rel3':[]}
    for k in range(n):
        for p in (('dist2','rel3') if k%2==0 else ('rel3','dist2')): r[p].append(run('./'+p,args)[0])
    ratios=[b/a for a,b in zip(r['dist2'],r['rel3'])]
    print(name, 'dist best %.3f release best %.3f (%+.1f %%), median of pairs %+.1f %% (%+.1f to %+.1f)'%(min(r['dist2']),min(r['rel3']),100*(min(r['rel3'])/min(r['dist2'])-1),100*(statistics.median(ratios)-1),100*(min(ratios)-1),100*(max(ratios)-1)),flush=True)
